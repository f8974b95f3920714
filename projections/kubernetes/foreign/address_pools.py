"""IPPool and CIDRPool of NVIPAM: whether each node has its part of the pool."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import ForeignKind, decoded
from projections.resources.kinds import CIDR_POOL, IP_POOL
from schemas.kubernetes.objects import Custom, Fields

_GROUP_VERSION = "nv-ipam.nvidia.com/v1alpha1"


class _Allocation(Fields, frozen=True, gc=False):
    node_name: str = ""


class _Status(Fields, frozen=True):
    allocations: list[_Allocation] | None = None


_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a pool."""
    count = len(decoded(_status, item.status, _Status()).allocations or ())
    return {"ready": count > 0, "message": "" if count else "no node has a part of it yet", "allocations": count}


POOLS = (
    ForeignKind(IP_POOL, _GROUP_VERSION, "ippools", observe),
    ForeignKind(CIDR_POOL, _GROUP_VERSION, "cidrpools", observe),
)

"""ServiceChainSet and ServiceInterfaceSet in a DPU cluster: whether each DPU has its chain or interface."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import Condition, ForeignKind, condition, decoded, told
from projections.resources.kinds import SERVICE_CHAIN_SET, SERVICE_INTERFACE_SET
from schemas.kubernetes.objects import Custom, Fields
from schemas.resources.dpf.chain import SERVICE_CHAIN_SET as CHAIN_SET_KIND
from schemas.resources.dpf.interface import SERVICE_INTERFACE_SET as INTERFACE_SET_KIND
from schemas.resources.kinds import Kind


class _Status(Fields, frozen=True):
    conditions: list[Condition] | None = None
    observed_generation: int = 0


_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a set."""
    found = decoded(_status, item.status, _Status())
    ready = condition(found.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True" and found.observed_generation >= item.metadata.generation
    message = told(ready.message if ready else "", "its DPU cluster reports nothing yet")
    return {"ready": is_ready, "phase": ready.reason if ready else "", "message": "" if is_ready else message}


def _foreign(name: str, kind: Kind) -> ForeignKind:
    return ForeignKind(name, kind.api_version, kind.plural, observe)


SETS = (_foreign(SERVICE_CHAIN_SET, CHAIN_SET_KIND), _foreign(SERVICE_INTERFACE_SET, INTERFACE_SET_KIND))

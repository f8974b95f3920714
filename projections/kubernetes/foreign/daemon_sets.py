"""DaemonSet of a service in a DPU cluster: on how many DPUs its pods must run, and on how many they do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import ForeignKind, decoded
from schemas.kubernetes.objects import Custom, Fields

INSTANCE = "argocd.argoproj.io/instance"
"""Label that Argo CD gives to every object of an Application."""


class _Status(Fields, frozen=True):
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    observed_generation: int = 0


_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a DaemonSet."""
    found = decoded(_status, item.status, _Status())
    is_current = found.observed_generation >= item.metadata.generation
    available = min(found.updated_number_scheduled, found.number_available)
    is_ready = is_current and available >= found.desired_number_scheduled
    return {
        "ready": is_ready,
        "message": "" if is_ready else f"{available} of {found.desired_number_scheduled} pods are ready and up to date",
        "instance": (item.metadata.labels or {}).get(INSTANCE, ""),
        "desired": found.desired_number_scheduled,
        "available": available,
    }


DAEMON_SET = ForeignKind("DaemonSet.apps", "apps/v1", "daemonsets", observe, label_selector=INSTANCE)

"""NetworkAttachmentDefinition in a DPU cluster: it has no status, so it is ready as soon as it exists."""

from __future__ import annotations

from collections.abc import Mapping

from projections.kubernetes.foreign.kind import ForeignKind
from projections.kubernetes.object_names import OWN_LABELS
from projections.resources.kinds import NETWORK_ATTACHMENT
from schemas.kubernetes.objects import Custom

_OURS = ",".join(f"{key}={value}" for key, value in OWN_LABELS.items())


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a network."""
    is_deleting = item.metadata.deletion_timestamp is not None
    return {"ready": not is_deleting, "message": "it is being deleted" if is_deleting else ""}


NETWORK = ForeignKind(
    NETWORK_ATTACHMENT, "k8s.cni.cncf.io/v1", "network-attachment-definitions", observe, label_selector=_OURS
)

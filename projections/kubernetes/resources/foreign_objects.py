"""Objects of others with the name of one that the plane wants to write: a copy of a Secret leaves them alone.

The names of all other kinds belong to DPF, and what DPF has made under them is taken over. The name of a copy is that
of a user's Secret, and another program may have a Secret of this name in the DPU cluster.
"""

from __future__ import annotations

from projections.kubernetes.object_events import ObjectEvent, Regarding
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.kubernetes.resources.live_object import LiveObject
from projections.kubernetes.resources.manifests import FIELD_MANAGER, is_own
from projections.resources.kinds import DPU_CLUSTER, short_name
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import IMAGE_PULL_SECRET

REASON = "PullSecretNotCopied"
"""The reason of an Event about a DPUCluster that has a Secret of others in place of a copy."""


def is_exclusive(wanted: Wanted) -> bool:
    """Whether an object is written only if no other one has its name."""
    return wanted.secret is not None and wanted.secret.form == "copy"


def is_foreign(wanted: Wanted, live: LiveObject) -> bool:
    """Whether an object of others must be left alone. A copy that DPF has made, which has the label of pull secrets, is
    taken over, and so is one of the plane that has lost its labels."""
    if not is_exclusive(wanted) or is_own(live.metadata) or live.managed(FIELD_MANAGER):
        return False
    return IMAGE_PULL_SECRET not in (live.metadata.labels or {})


def dpu_cluster(source: str, own: str) -> ObjectId:
    """The DPUCluster whose objects have a source; `own` is the source of the DPUCluster itself."""
    namespace, _, name = source.removeprefix(f"{own}.").partition(".")
    return ObjectId(own, DPU_CLUSTER, namespace, name)


def not_copied(at: ObjectId, cluster: ObjectId, uid: str) -> ObjectEvent:
    """The Event about a Secret of others in a DPU cluster. `uid` is that of the DPUCluster."""
    kind = API_KINDS[cluster.kind]
    regarding = Regarding(kind.api_version, kind.name, cluster.name, uid, cluster.namespace)
    name = short_name(at.key)
    message = f"{name} of the DPU cluster is no copy of the pull secret, and is left alone; delete it to have the copy"
    return ObjectEvent(regarding, REASON, message, code=f"{at.namespace}/{at.name}")

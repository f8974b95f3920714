"""Secret for pulling images in a source cluster: its version, which changes with its content.

The content is never read from the watch, and so it is in no record. A digest of the content is none either: whoever
reads the log could try passwords until one has the digest.
"""

from __future__ import annotations

from collections.abc import Mapping

from projections.kubernetes.foreign.kind import ForeignKind
from projections.resources.kinds import SECRET
from schemas.kubernetes.objects import Custom
from schemas.resources.dpf.names import IMAGE_PULL_SECRET


def observe(item: Custom) -> Mapping[str, object] | None:
    """The fields of the observation of a Secret; None for one that is being deleted."""
    about = item.metadata
    if about.deletion_timestamp is not None:
        return None
    return {"ready": True, "version": f"{about.uid}/{about.resource_version}"}


PULL_SECRET = ForeignKind(SECRET, "v1", "secrets", observe, label_selector=IMAGE_PULL_SECRET)

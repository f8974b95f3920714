"""The row of a source whose networks change in stages."""

from __future__ import annotations

import msgspec

from projections.staging.course import COMPLETE, Course
from projections.staging.plan import StagePlan

PREFIX = "dpuplane.io/network-"
"""Beginning of the annotations of a DPFOperatorConfig that state stages (annotations.py)."""
MAX_NETWORKS_BYTES = 128 * 1024
"""Maximum size of encoded networks: they must fit in one record."""


class StagedNetworks(Course, msgspec.Struct, frozen=True):
    """The last staged change of the networks of a source, and how far it is.

    `before` and `after` are the encoded networks (network_documents/stated_text.py). They are equal if nothing has
    changed since the source states stages. The other fields are those of any staged change (staging/course.py).
    """

    version: int
    before: str
    after: str
    plan: StagePlan
    began_ms: int
    since_ms: int
    stage: int = 0
    released: tuple[int, ...] = ()
    paused_by: str = ""
    held: str = ""
    failed: dict[str, str] = {}
    forgiven: tuple[str, ...] = ()
    undone_by: str = ""
    result: str = ""
    ended_ms: int = 0

    @property
    def settled(self) -> str:
        """The networks that every DPU should have if no change were under way."""
        return self.after if self.result == COMPLETE else self.before

    def of_stage(self, stage: int) -> str:
        """The networks that a DPU should have: `stage` is its released stage, 0 if it has none."""
        is_changed = self.is_open and (stage or self.is_everywhere)
        return self.after if is_changed else self.settled


def stage_key(source: str, zone: str) -> str:
    """The key of the row with the named DPUs of a source in a zone: no part contains a slash."""
    return f"{source}/{zone}"

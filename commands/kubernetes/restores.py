"""The restores of an API server from backups, as ranges of resource versions, which outlive the process.

After a restore, the API server lacks what was created after the backup, and counts its versions on from the backup's.
An object in the log with a version between the backup's and the last one before the restore may therefore be missing
because of the restore, and its absence is no evidence of a deletion.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from commands.kubernetes.observation_edge import ObservationEdge
from projections.resources.state import ObjectId

SOURCE_CLUSTER = "SourceCluster.dpuplane.io"
"""The kind of the observation, under the name `restores`."""
RANGES_MAX = 50
"""Maximum number of ranges; the two oldest ones become one."""

_Range = tuple[int, int]


class _Observed(msgspec.Struct, frozen=True):
    ranges: list[_Range] = []


_observed = msgspec.json.Decoder(_Observed)


class Restores:
    """The ranges of one source cluster. An observation of this cluster keeps them."""

    def __init__(self, observations: ObservationEdge) -> None:
        self._observations = observations
        self._at = ObjectId(observations.source, SOURCE_CLUSTER, "", "restores")

    def cover(self, version: int) -> bool:
        """Whether the object with this version may be missing because of a restore."""
        return any(low < version <= high for low, high in self._ranges())

    def add(self, backup: int, newest: int) -> None:
        """Record a restore of a backup with this version; before it, the server had the newest version."""
        ranges = self._ranges()
        if backup < newest and not any(low <= backup and newest <= high for low, high in ranges):
            fields = {"ready": True, "ranges": _merged([*ranges, (backup, newest)])}
            self._observations.put(self._at, "", fields)

    def _ranges(self) -> list[_Range]:
        text = self._observations.text(self._at)
        return _observed.decode(text).ranges if text else []


def _merged(ranges: Sequence[_Range]) -> list[_Range]:
    """The union of the ranges, sorted."""
    found: list[_Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    while len(found) > RANGES_MAX:
        found[:2] = [(found[0][0], found[1][1])]
    return found

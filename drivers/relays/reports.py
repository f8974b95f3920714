"""A relay's reports to the log about the tables of a zone's DPUs: on change only, batched, at most one per second.

A report has one bitmap of DPU ordinals per version and level. The fold merges bitmaps by OR. So a second report of the
same content, by this relay or by another, changes nothing, and a report of unknown outcome can be repeated. Refusals
(`refused`) and DPUs with an older table than before (`regressed`) are reported by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from pyroaring import BitMap

from eventstore.ids import internal_envelope
from projections.installs.rows import Level
from schemas.events import InstallsReported

V = TypeVar("V")

PROGRESS_S = 1.0
"""Interval of a zone's reports while a version is delivered to it."""

EXCEPTIONS_S = 5.0
"""Interval of reports that contain only refusals or regressions."""

NAMES_MAX = 100
"""Maximum number of DPUs named in one report, to keep the record small. The next report names the others."""

ENTRIES_MAX = 300
"""Maximum number of pairs of version and level in one report. The newest pairs are reported, because a DPU with a
version has the changes of all earlier versions."""

SETS_BYTES_MAX = 768 * 1024
"""Maximum number of bytes of all sets of ordinals in one report. A record may have 1 MiB; the rest is for names and
reasons. For the largest zones, this is about as many versions as the fold stores."""


@dataclass(slots=True)
class DpusAtLevel:
    """The DPUs with a version at a level; the last of them reported it at `reached_ms`."""

    ordinals: BitMap
    appended_ms: int
    reached_ms: int


class ReportBuffer:
    """The content of the next report of one zone."""

    def __init__(self) -> None:
        self.reached: dict[tuple[int, Level], DpusAtLevel] = {}
        self.regressed: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.last_s = float("-inf")

    def reach(self, version: int, level: Level, ordinals: BitMap, appended_ms: int, now_ms: int) -> None:
        """Record that these DPUs have this version at this level."""
        before = self.reached.get((version, level))
        if before is None:
            self.reached[version, level] = DpusAtLevel(ordinals.copy(), appended_ms, now_ms)
        else:
            before.ordinals |= ordinals
            before.reached_ms = now_ms

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.reached or self.regressed or self.refused)

    def is_due(self, now: float) -> bool:
        """Whether there is a report, and the interval since the last one is over."""
        if self.reached:
            return now >= self.last_s + PROGRESS_S
        return bool(self.regressed or self.refused) and now >= self.last_s + EXCEPTIONS_S

    def take(self, now: float) -> ReportBuffer:
        """Take the content of the next report. Names beyond the limit stay for the next report. If there are too many
        versions, the oldest ones are dropped. They are not needed: a DPU that has none of the reported versions counts
        as behind even if its own version is not reported."""
        taken = ReportBuffer()
        taken.reached = {key: self.reached[key] for key in reversed(list(self._newest()))}
        taken.regressed, self.regressed = _split(self.regressed)
        taken.refused, self.refused = _split(self.refused)
        self.reached = {}
        self.last_s = now
        return taken

    def _newest(self) -> Iterator[tuple[int, Level]]:
        """The newest entries that fit into one report."""
        left = SETS_BYTES_MAX
        for key in sorted(self.reached, reverse=True)[:ENTRIES_MAX]:
            left -= len(self.reached[key].ordinals.serialize())
            if left < 0:
                return
            yield key

    def put_back(self, taken: ReportBuffer) -> None:
        """Merge a report of unknown outcome back into the buffer, so that it is repeated."""
        for (version, level), reached in taken.reached.items():
            since = self.reached.get((version, level))
            reached_ms = max(reached.reached_ms, since.reached_ms if since else 0)
            self.reach(version, level, reached.ordinals, reached.appended_ms, reached_ms)
        self.regressed = {**taken.regressed, **self.regressed}
        self.refused = {**taken.refused, **self.refused}

    def event(self, zone: str, relay: str, epoch: int, dpu_count: int, now_ms: int) -> InstallsReported:
        """This report as an event."""
        keys = list(self.reached)
        return InstallsReported(
            envelope=internal_envelope(zone, f"relay/{relay}", now_ms),
            zone=zone,
            relay=relay,
            epoch=epoch,
            dpu_count=dpu_count,
            versions=[version for version, _ in keys],
            levels=[int(level) for _, level in keys],
            ordinals=[self.reached[key].ordinals.serialize() for key in keys],
            appended_ms=[self.reached[key].appended_ms for key in keys],
            reached_ms=[self.reached[key].reached_ms for key in keys],
            regressed=self.regressed,
            refused=self.refused,
        )


def _split(names: dict[str, V]) -> tuple[dict[str, V], dict[str, V]]:
    """The first NAMES_MAX names, and the rest."""
    items = list(names.items())
    return dict(items[:NAMES_MAX]), dict(items[NAMES_MAX:])

"""What a relay says to the log about a zone's DPUs: on change only, gathered, and never more than once a second.

Per version and level a bitmap of DPU ordinals. The fold joins them by OR, so a report that is written twice, or by two
relays about one DPU, changes nothing, and one that may not have been written is simply said again. Only what takes
something back (`regressed`) is said by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from pyroaring import BitMap

from eventstore.ids import internal_envelope
from schemas.events import InstallsReported

V = TypeVar("V")

PROGRESS_S = 1.0
"""Between reports of a zone while a version is on its way through it."""

EXCEPTIONS_S = 5.0
"""Between reports that only repeat who refused or went back."""

NAMES_MAX = 100
"""DPUs named in one report at most: keeps the record small. The others are named in the next one."""

ENTRIES_MAX = 300
"""Versions times levels in one report at most; the newest, since having one says that one had all before it."""

SETS_BYTES_MAX = 768 * 1024
"""Of all sets of ordinals in one report. A record may have 1 MiB: the rest is for names and reasons. Of the largest
zones, about as many versions as the fold remembers."""


class Level(IntEnum):
    """How far a version has come on a DPU."""

    RECEIVED = 0
    APPLIED = 1
    IN_HARDWARE = 2


@dataclass(slots=True)
class DpusAtLevel:
    """These DPUs have a version at a level; the last of them said so at `reached_ms`."""

    ordinals: BitMap
    appended_ms: int
    reached_ms: int


class ReportBuffer:
    """What the next report of one zone will say."""

    def __init__(self) -> None:
        self.reached: dict[tuple[int, Level], DpusAtLevel] = {}
        self.regressed: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.last_s = float("-inf")

    def reach(self, version: int, level: Level, ordinals: BitMap, appended_ms: int, now_ms: int) -> None:
        """These DPUs now have this version at this level."""
        before = self.reached.get((version, level))
        if before is None:
            self.reached[version, level] = DpusAtLevel(ordinals.copy(), appended_ms, now_ms)
        else:
            before.ordinals |= ordinals
            before.reached_ms = now_ms

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.reached or self.regressed or self.refused)

    def is_due(self, now: float) -> bool:
        """Whether something is to be said, and may be by now."""
        if self.reached:
            return now >= self.last_s + PROGRESS_S
        return bool(self.regressed or self.refused) and now >= self.last_s + EXCEPTIONS_S

    def take(self, now: float) -> ReportBuffer:
        """What to say now. The other names stay; older versions do not: who has none of these is behind anyway."""
        taken = ReportBuffer()
        taken.reached = {key: self.reached[key] for key in reversed(list(self._newest()))}
        taken.regressed, self.regressed = _split(self.regressed)
        taken.refused, self.refused = _split(self.refused)
        self.reached = {}
        self.last_s = now
        return taken

    def _newest(self) -> Iterator[tuple[int, Level]]:
        """What fits into one report, the newest first."""
        left = SETS_BYTES_MAX
        for key in sorted(self.reached, reverse=True)[:ENTRIES_MAX]:
            left -= len(self.reached[key].ordinals.serialize())
            if left < 0:
                return
            yield key

    def put_back(self, taken: ReportBuffer) -> None:
        """It may not have been written: say it again, beside what has come since."""
        for (version, level), reached in taken.reached.items():
            since = self.reached.get((version, level))
            reached_ms = max(reached.reached_ms, since.reached_ms if since else 0)
            self.reach(version, level, reached.ordinals, reached.appended_ms, reached_ms)
        self.regressed = {**taken.regressed, **self.regressed}
        self.refused = {**taken.refused, **self.refused}

    def event(self, zone: str, relay: str, epoch: int, dpu_count: int, now_ms: int) -> InstallsReported:
        """This, as it goes into the log."""
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
    """The first few, and the others."""
    items = list(names.items())
    return dict(items[:NAMES_MAX]), dict(items[NAMES_MAX:])

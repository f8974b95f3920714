"""A history of an installs partition with every refusal of its fold, and random events."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace
from pyroaring import BitMap

from eventstore.ids import internal_envelope
from eventstore.log import INSTALLS, Partition, Record
from projections.installs.fold import MAX_ORDINAL, InstallsFold
from schemas.events import MAX_ITEMS, InstallsReported
from tests.support.delivered import Delivered
from tests.support.toy_records import T0

Entry = tuple[int, int, Sequence[int], int]
"""Version, level, ordinals, and how long after the version's append time they reached it; -1 if nobody knows."""


class _Reports:
    """Relay reports of a partition's zones, one second apart."""

    def __init__(self) -> None:
        self.delivered = Delivered(Partition(INSTALLS, 0), InstallsFold(), T0)
        self.now_ms = T0

    def say(self, *entries: Entry, late_ms: int = 0, **changes: Any) -> None:
        self.now_ms += 1_000
        said = replace(_report(entries, self.now_ms - late_ms), **changes)
        self.delivered.issue(said, self.now_ms)


def _report(entries: Sequence[Entry], now_ms: int) -> InstallsReported:
    appended_ms = [T0 + 10 * version if after_ms >= 0 else 0 for version, _, _, after_ms in entries]
    return InstallsReported(
        envelope=internal_envelope("z1", "relay/r", now_ms),
        zone="z1",
        relay="r",
        epoch=1,
        dpu_count=10,
        versions=[version for version, _, _, _ in entries],
        levels=[level for _, level, _, _ in entries],
        ordinals=[_packed(ordinals) for _, _, ordinals, _ in entries],
        appended_ms=appended_ms,
        reached_ms=[ms + max(entry[3], 0) for ms, entry in zip(appended_ms, entries, strict=True)],
        regressed={},
        refused={},
    )


def _packed(ordinals: Sequence[int]) -> bytes:
    return bytes(BitMap(ordinals).serialize())


def records() -> list[Record]:
    reports = _Reports()
    _malformed(reports)
    _merged(reports)
    _some(reports, Random(3))
    return reports.delivered.records


def _malformed(reports: _Reports) -> None:
    changes: list[dict[str, Any]] = [
        {"zone": "a/b"},
        {"versions": [1, 2]},
        {"levels": []},
        {"levels": [3]},
        {"versions": [-1]},
        {"reached_ms": [-5]},
        {"appended_ms": [1 << 52]},
        {"ordinals": [b""]},
        {"ordinals": [b"nonsense"]},
        {"ordinals": [_packed([MAX_ORDINAL])]},
        {"ordinals": [_packed([1])] * (MAX_ITEMS + 1)},
        {"dpu_count": -1},
        {"dpu_count": MAX_ORDINAL + 1},
        {"epoch": -1},
        {"regressed": {"": 1}},
        {"refused": {"d1": "two\nlines"}},
    ]
    for change in changes:
        reports.say((5, 1, [1], 10), **change)


def _merged(reports: _Reports) -> None:
    """Columns of one value; equal, unknown, earlier and contradicting times; more entries than the fold stores."""
    reports.say((5, 0, range(6), 10), epoch=0)
    reports.say((5, 0, range(6), 10), (5, 0, range(4, 9), 30), (5, 1, range(3), -1), (7, 2, [], 5))
    reports.say((5, 0, [8, 9], 20), (5, 1, [0, 1], 1_000_003), regressed={"d1": 4}, refused={"d2": "full"})
    reports.say((5, 0, [8, 9], 20), late_ms=60_000, dpu_count=12, refused={"d1": "no"})
    reports.say((5, 1, [1], 10), ordinals=[_packed([1]), _packed([2])], regressed={"d2": 3})
    for claimed_ms in range(0, 3_000, 1_000):
        at = [T0 + claimed_ms + number for number in range(1_000)]
        ordinals = [_packed([claimed_ms + number]) for number in range(1_000)]
        reports.say(zone="z2", versions=[3], levels=[1], ordinals=ordinals, appended_ms=at, reached_ms=at)
    for version in range(30):
        reports.say((version, 1, [version % 10], 5), zone="z3")
    reports.say((2, 1, [0], 5), zone="z3")
    for number in range(250):
        reports.say(zone="z4", refused={f"d{number}": "full"}, late_ms=number * 7_919 % 100_000)
    reports.say((4, 1, [1], 5), (31, 2, [2], 5), zone="z3", epoch=2)
    reports.say((9, 1, [1], 5), zone="z3", epoch=1)


def _some(reports: _Reports, rng: Random) -> None:
    for _ in range(300):
        entries = [
            (
                rng.randrange(26),
                rng.randrange(3),
                sorted(rng.sample(range(60), rng.randrange(9))),
                rng.choice([-1, rng.randrange(500), rng.randrange(100_000)]),
            )
            for _ in range(rng.randrange(4))
        ]
        names = [f"d{number}" for number in range(5)]
        reports.say(
            *entries,
            late_ms=rng.randrange(5_000),
            zone=rng.choice(["r1", "r1", "r2"]),
            epoch=1 if rng.random() < 0.99 else 2,
            dpu_count=rng.randrange(50, 60),
            regressed={name: rng.randrange(9) for name in names if rng.random() < 0.1},
            refused={name: rng.choice(["full", "lies"]) for name in names if rng.random() < 0.1},
        )

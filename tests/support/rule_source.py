"""Rule tables for relays without a log: tables set by the test, with versions and history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network

from drivers.relays.rule_source import CurrentTable
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, digest_of, steps_between
from projections.rules.rule import Delta, Rule
from schemas.events import InstallsReported

ALLOW = Rule(0, "allow", "any", ())
DROP = Rule(10, "drop", "tcp", (22, 22))


def packed(*networks: str) -> frozenset[bytes]:
    """Prefixes in the encoding of devices."""
    parsed = map(ip_network, networks)
    return frozenset(network.network_address.packed + bytes((network.prefixlen,)) for network in parsed)


class Tables:
    """Implements `drivers.relays.rule_source.RuleSource` for zones that all share one list."""

    def __init__(self, dpus: Iterable[str] = (), *, epoch: int = 1) -> None:
        self.epoch = epoch
        self.history: dict[int, DeviceTable] = {}
        self.earliest_ms: dict[int, int] = {}
        self.ordinals = {name: ordinal for ordinal, name in enumerate(dpus)}
        self.frozen: set[str] = set()
        self.unknown: set[tuple[int, int]] = set()
        self.reports: list[InstallsReported] = []
        self.no_cohorts: dict[str, int] = {}
        self.deltas = 0
        self.snapshots = 0
        self._moved = asyncio.Event()

    @property
    def table(self) -> DeviceTable:
        return self.history[max(self.history)] if self.history else EMPTY_TABLE

    def put(self, version: int, rules: dict[Rule, frozenset[bytes]], at_ms: int = 0) -> DeviceTable:
        """The next version of every zone's table."""
        self.history[version] = DeviceTable(self.epoch, version, digest_of(rules), rules)
        self.earliest_ms[version] = at_ms
        self.wake()
        return self.table

    def wake(self) -> None:
        self._moved.set()

    def knows(self, epoch: int, version: int) -> bool:
        return (epoch, version) not in self.unknown

    async def changed(self) -> bool:
        await self._moved.wait()
        self._moved.clear()
        return True

    def current(self, zone: str, since: int, stage: int = 0) -> CurrentTable:
        table = self.table
        skipped = (at_ms for version, at_ms in self.earliest_ms.items() if version > since > 0)
        earliest_ms = min(skipped, default=self.earliest_ms.get(table.version, 0))
        return CurrentTable(table.version, table.digest, "all", earliest_ms, table.size)

    def delta(self, zone: str, since: int, stage: int = 0) -> Delta | None:
        self.deltas += 1
        if since not in self.history:
            return None
        steps = steps_between(self.history[since], self.table)
        return Delta(since, self.table.version, self.table.digest, steps)

    def snapshot(self, zone: str, stage: int = 0) -> Delta:
        self.snapshots += 1
        return Delta(0, self.table.version, self.table.digest, steps_between(EMPTY_TABLE, self.table))

    def cohorts(self, zone: str) -> Mapping[str, int]:
        return self.no_cohorts

    def is_frozen(self, zone: str) -> bool:
        return zone in self.frozen

    def ordinals_of(self, zone: str, dpus: Sequence[str]) -> list[int | None]:
        return [self.ordinals.get(dpu) for dpu in dpus]

    def registrations(self, zone: str) -> object:
        return tuple(self.ordinals.items())

    def dpu_count(self, zone: str) -> int:
        return len(self.ordinals)

    async def report(self, event: InstallsReported) -> None:
        self.reports.append(event)

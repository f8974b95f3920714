"""How much is withdrawn at a time, counted from rows alone: by address, as a packet would find it.

A list's window in the plane is at least what is counted here for a zone (it is shared with zones of the same list, and
forgets late), and a larger one only makes the plane hold more; so what is over budget here, is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eventstore.log import FLEET_0
from projections.policies import BUILT_IN, Policy
from projections.withdrawals import DEFAULTS, WINDOW_MS
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Step

Found = Iterator[str]
Address = bytes
Labels = Mapping[str, str]
Traffic = frozenset[tuple[str, int]]
"""Classes of traffic, each by a protocol and a port of it."""

LEFT = 1
"""The state of an item of a MembershipChanged whose leave somebody stated."""

_MADE_OF = frozenset({"members", "kept", "policies", "zones"})


class Reachable:
    """Which traffic of which addresses is let through, from the rows of fleet as they are by now."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {BUILT_IN.name: BUILT_IN}
        self.zones: dict[str, Labels] = {"": {}}
        self._parts: dict[tuple[str, str], list[tuple[frozenset[Address], Labels]]] = {}
        self._holders: dict[Address, dict[tuple[str, str], list[Labels]]] = {}

    def concerned(self, step: Step) -> set[Address]:
        """The addresses whose verdicts a record may change."""
        found = self.addresses if {"policies", "zones"} & step.rows.keys() else set()
        for table in ("members", "kept"):
            for name, row in step.rows.get(table, ()):
                for addresses, _ in (*self._parts.get((table, name), ()), *_parts(table, row)):
                    found |= addresses
        return found

    def take(self, step: Step) -> None:
        """The rows that a record changed."""
        for table in ("members", "kept"):
            for name, row in step.rows.get(table, ()):
                self._put((table, name), _parts(table, row))
        for name, policy in step.rows.get("policies", ()):
            self.policies.pop(name, None) if policy is None else self.policies.update({name: policy})
        self.zones |= {name: zone.labels for name, zone in step.rows.get("zones", ())}

    @property
    def addresses(self) -> set[Address]:
        """All that are, or were, held by anybody."""
        return set(self._holders)

    def verdicts(self, addresses: set[Address], classes: list[tuple[str, int]]) -> dict[str, dict[Address, Traffic]]:
        """Per zone what is let through from each of these addresses."""
        found = {}
        for zone, labels in self.zones.items():
            fitting = [policy for policy in self.policies.values() if policy.zones.items() <= labels.items()]
            fitting.sort(key=lambda policy: (-policy.priority, policy.action != "drop"))
            found[zone] = {address: self._verdict(address, fitting, classes) for address in addresses}
        return found

    def _verdict(self, address: Address, fitting: list[Policy], classes: list[tuple[str, int]]) -> Traffic:
        labels = [of for parts in self._holders.get(address, {}).values() for of in parts]
        mine = [policy for policy in fitting if any(policy.sources.items() <= of.items() for of in labels)]
        first = ((kind, next((policy.action for policy in mine if _fits(policy, *kind)), "drop")) for kind in classes)
        return frozenset(kind for kind, action in first if action == "allow")

    def _put(self, key: tuple[str, str], parts: list[tuple[frozenset[Address], Labels]]) -> None:
        for addresses, _ in self._parts.pop(key, ()):
            for address in addresses:
                self._holders[address].pop(key, None)
        self._parts[key] = parts
        for addresses, labels in parts:
            for address in addresses:
                self._holders.setdefault(address, {}).setdefault(key, []).append(labels)


def _classes(policies: Iterable[Policy]) -> list[tuple[str, int]]:
    """One of every class of traffic that these policies tell apart."""
    ports = {0, *(port + more for policy in policies for port in policy.ports for more in (0, 1))}
    return [(protocol, port) for protocol in ("tcp", "udp") for port in sorted(ports)] + [("icmp", 0), ("other", 0)]


def _fits(policy: Policy, protocol: str, port: int) -> bool:
    if policy.protocol not in ("any", protocol):
        return False
    ports = policy.ports
    return not ports or any(a <= port <= b for a, b in zip(ports[::2], ports[1::2], strict=True))


def _parts(table: str, row: Any) -> list[tuple[frozenset[Address], Labels]]:
    """The addresses that a row makes reachable, with its labels."""
    if row is None or (table == "members" and row.slot < 0):
        return []
    found = []
    for part in [row] if table == "members" else row.parts:
        four = part.address4.to_bytes(4, "big") if part.address4 else b""
        found.append((frozenset(filter(None, (four, part.address6))), part.labels))
    return found


class _Spent:
    """What was withdrawn from one zone of late: when, how much, and whether by leaves that were stated."""

    def __init__(self) -> None:
        self._withdrawn: list[tuple[int, int, bool]] = []

    def add(self, now_ms: int, count: int, stated: bool) -> None:
        self._withdrawn.append((now_ms, count, stated))

    def since(self, now_ms: int, *, with_stated: bool) -> int:
        late = (
            count for at_ms, count, stated in self._withdrawn if at_ms > now_ms - WINDOW_MS and stated <= with_stated
        )
        return sum(late)


def check_budgets(run: Evidence) -> Found:
    """I13: no zone loses more addresses in ten minutes than its budgets let go, unless it was approved."""
    reach, budgets, now_ms = Reachable(), dict(DEFAULTS.items()), 0
    spent: dict[str, _Spent] = defaultdict(_Spent)
    for step in run.steps[FLEET_0]:
        now_ms = max(now_ms, step.record.timestamp_ms)
        if _MADE_OF & step.rows.keys():
            lost = _lost(reach, step)
            stated = isinstance(step.event, e.MembershipChanged) and LEFT in step.event.states
            kinds = ("inferred", "stated") if stated else ("inferred",)
            for zone, (count, allowed) in lost.items():
                if isinstance(step.event, e.HoldApproved):
                    continue
                before = spent[zone].since(now_ms, with_stated=stated)
                most = sum(budgets[kind].limit(allowed + before) for kind in kinds)
                spent[zone].add(now_ms, count, stated)
                if before + count > most:
                    where = f"{FLEET_0}@{step.record.offset}"
                    yield f"{where}: {zone or 'any zone'} loses {count} addresses after {before}, of {most} at most"
        budgets |= {kind: row for kind, row in step.rows.get("budgets", ()) if row is not None}


def _lost(reach: Reachable, step: Step) -> dict[str, tuple[int, int]]:
    """Takes a record. Per zone, how many addresses lose something that was let through, and how many had anything."""
    concerned, zones = reach.concerned(step), list(reach.zones)
    changed = [policy for _, policy in step.rows.get("policies", ()) if policy is not None]
    classes = _classes([*reach.policies.values(), *changed])
    before = reach.verdicts(concerned, classes)
    reach.take(step)
    after = reach.verdicts(concerned, classes)
    lost: dict[str, tuple[int, int]] = {}
    for zone in zones:
        count = sum(bool(before[zone][address] - after[zone][address]) for address in concerned)
        if count:
            others = reach.verdicts(reach.addresses - concerned, classes)[zone]
            lost[zone] = count, sum(map(bool, [*before[zone].values(), *others.values()]))
    return lost

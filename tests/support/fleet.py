"""A fleet fold driven by hand, and an independent oracle of its tables.

The oracle reads rows (members, held states, policies, zones' labels) and uses Python's ipaddress; it shares no code
with the fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses
from itertools import cycle, groupby, islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from eventstore.folding.fold import Outcome, RecordMetadata, fold_time
from eventstore.log import FLEET, Partition, partition_of
from projections.fleet.fold import FleetFold2, FleetState
from projections.fleet.tables.zone_table import table
from projections.fleet.views import HoldView, hold_view, open_holds
from projections.fleet.withdrawals.budgets import BUDGET_KINDS, UNLIMITED_PERMILLE
from projections.fleet.withdrawals.settled_levels import SETTLED_MS, STEP_MS
from projections.rules.digests import digest_of, to_bytes
from projections.rules.policies import Policy
from projections.rules.prefixes import networks
from projections.rules.rule import Delta, Rule
from schemas.events import (
    BudgetSet,
    Envelope,
    Event,
    HoldApproved,
    HoldRejected,
    MembershipChanged,
    PolicyDeleted,
    PolicySet,
    PolicyStaged,
    StageDpusNamed,
    StageObserved,
    StagesRequested,
    ZoneUpdated,
)

Address = IPv4Address | IPv6Address
PARTITIONS = 4
HERE = Partition(FLEET, 0)


class Item(NamedTuple):
    """One item of a MembershipChanged. States: 0 present, 1 left, 2 left (inferred), 3 left (superseded).

    Values from 4 on: present; 3 plus the bits of the fields that the node's agent stated.
    """

    name: str
    zone: str = "z0"
    address: str = ""
    address6: str = ""
    labels: Mapping[str, str] = {}
    state: int = 0
    created_ms: int = 1
    uid: str = "u"
    changed_ms: int = 0
    last_present_ms: int = 0


class Fleet:
    """A fold, its state, and the log position and time of the next record."""

    def __init__(self) -> None:
        self.fold = FleetFold2(PARTITIONS)
        self.state: FleetState = self.fold.initial_state(HERE)
        self.offset = 10
        self.now_ms = self.time_ms = 1_000_000

    def apply(self, event: Event) -> Outcome:
        before_ms, self.time_ms = self.time_ms, fold_time(self.time_ms, self.now_ms)
        if self.time_ms < before_ms:
            self.fold.rewind(self.state, self.time_ms)
        at = RecordMetadata(HERE, self.offset, self.now_ms, self.time_ms)
        decision = self.fold.decide(self.state, event, at)
        if decision.change is not None:
            self.fold.evolve(self.state, decision.change, at)
        self.offset += 1
        return decision.outcome

    def change(
        self,
        *items: Item,
        partition: int | None = None,
        earliest_ms: int = 0,
        command_id: str = "",
        commands: str = "",
    ) -> Outcome:
        """One record of these items, from the partition of the first item's zone. It comes from one command if its id
        is given, or from the commands of these letters in turn.
        """
        cause = partition_of(items[0].zone.encode(), PARTITIONS) if partition is None else partition
        mark = self.state.marks.get(cause, 0)
        event = membership(cause, mark, mark + 1, items, earliest_ms or self.now_ms)
        if command_id:
            event = replace(event, command_ids=[command_id], actors=["ann"], cause_items=[len(items)])
        if commands:
            runs = [(letter, len([*run])) for letter, run in groupby(islice(cycle(commands), len(items)))]
            ids, counts = [letter for letter, _ in runs], [count for _, count in runs]
            event = replace(event, command_ids=ids, actors=["ann"] * len(runs), cause_items=counts)
        return self.apply(event)

    def leave(self, *names: str, state: int = 1) -> Outcome:
        """These members leave their zones."""
        rows = self.state.members.rows
        return self.change(
            *(Item(n, rows[n].zone, state=state, created_ms=rows[n].created_ms, uid=rows[n].uid) for n in names)
        )

    def policy(
        self,
        name: str,
        *,
        priority: int = 0,
        action: str = "allow",
        protocol: str = "any",
        ports: Sequence[int] = (),
        sources: Mapping[str, str] | None = None,
        zones: Mapping[str, str] | None = None,
        actor: str = "ann",
    ) -> Outcome:
        event = PolicySet(
            envelope(actor), name, priority, action, protocol, list(ports), dict(sources or {}), dict(zones or {})
        )
        return self.apply(event)

    def delete_policy(self, name: str, actor: str = "ann") -> Outcome:
        return self.apply(PolicyDeleted(envelope(actor), name))

    def stage(
        self,
        name: str,
        stages: Sequence[str] = ("1", "10%", "100%"),
        *,
        priority: int = 5,
        action: str = "drop",
        sources: Mapping[str, str] | None = None,
        zones: Mapping[str, str] | None = None,
        is_deleted: bool = False,
        bake_ms: int = 0,
        failure_budget: str = "0",
        actor: str = "ann",
    ) -> Outcome:
        """Set or delete a policy in stages."""
        event = PolicyStaged(
            envelope(actor),
            name,
            is_deleted,
            priority,
            action,
            "any",
            [],
            dict(sources or {}),
            dict(zones or {}),
            [*stages],
            bake_ms,
            failure_budget,
        )
        return self.apply(event)

    def name_dpus(self, stage: int, *dpus: str, total: int = 100, change: int = -1) -> Outcome:
        """Name DPUs, each as ZONE/NAME, for a stage of the present change."""
        pairs = [dpu.split("/") for dpu in dpus]
        zones, names = [zone for zone, _ in pairs], [name for _, name in pairs]
        return self.apply(StageDpusNamed(envelope("driver/a"), self._change(change), stage, total, zones, names))

    def observe(
        self,
        stage: int,
        *,
        named: int = 0,
        waiting: int = 0,
        total: int = 100,
        failed: Mapping[str, str] | None = None,
        change: int = -1,
    ) -> Outcome:
        """A driver saw how far the present change is."""
        found = failed or {}
        event = StageObserved(
            envelope("driver/a"), self._change(change), stage, total, named, waiting, [*found], [*found.values()]
        )
        return self.apply(event)

    def request_stages(self, verb: str, name: str, actor: str = "ann") -> Outcome:
        return self.apply(StagesRequested(envelope(actor), name, verb))

    def _change(self, given: int) -> int:
        staged = self.state.staged
        return given if given >= 0 else staged.version if staged is not None else 0

    def describe(self, zone: str, labels: Mapping[str, str], actor: str = "ann") -> Outcome:
        return self.apply(ZoneUpdated(envelope(actor), zone, True, dict(labels), -1, -1))

    def limit(self, zone: str, installs: int, nodes: int) -> Outcome:
        return self.apply(ZoneUpdated(envelope("ann"), zone, False, {}, installs, nodes))

    def attempt_limits(self, zone: str, *stated: int) -> Outcome:
        """Set how often a step of a zone's DPUs is attempted, by kind of failure."""
        return self.apply(ZoneUpdated(envelope("ann"), zone, False, {}, -1, -1, attempt_limits=[*stated]))

    def agents(self, zone: str, networks: Sequence[str], keys: Sequence[str]) -> Outcome:
        """Set which fields node agents may state in a zone."""
        return self.apply(ZoneUpdated(envelope("ann"), zone, False, {}, -1, -1, True, [*networks], True, [*keys]))

    def budget(self, kind: str, permille: int, min_addresses: int) -> Outcome:
        """Set a budget; two people approve it if it is looser."""
        outcome = self.apply(BudgetSet(envelope("ann"), kind, permille, min_addresses))
        if outcome.code != "held":
            return outcome
        assert self.approve(outcome.result["hold"], "budget-1").code == "done"
        return self.approve(outcome.result["hold"], "budget-2")

    def settle(self) -> None:
        """Advance time until all addresses count in the base of budgets and no withdrawal counts."""
        self.now_ms += SETTLED_MS + STEP_MS

    def unlimited(self) -> None:
        """Set budgets that hold no change."""
        for kind in BUDGET_KINDS:
            self.budget(kind, UNLIMITED_PERMILLE, 0)

    def approve(self, hold: int, actor: str) -> Outcome:
        row = self.state.holds.rows.get(str(hold))
        return self.apply(HoldApproved(envelope(actor), hold, row.hash if row else b""))

    def reject(self, hold: int, actor: str = "eve") -> Outcome:
        return self.apply(HoldRejected(envelope(actor), hold))

    def reload(self) -> FleetState:
        """A state loaded from this one's saved rows alone."""
        loaded = self.fold.initial_state(HERE)
        for rows, saved in zip(loaded.tables, self.state.tables, strict=True):
            packed = {key: msgspec.msgpack.encode(row) for key, row in saved.rows.items()}
            rows.rows.clear()
            rows.load((key, msgspec.msgpack.decode(row, type=rows.row_type)) for key, row in sorted(packed.items()))
        loaded.rederive()
        return loaded


def saved_bytes(state: FleetState) -> dict[str, dict[str, bytes]]:
    """All saved rows, as bytes."""
    return {
        table.name: {key: msgspec.msgpack.encode(row) for key, row in sorted(table.rows.items())}
        for table in state.tables
    }


def envelope(actor: str) -> Envelope:
    return Envelope("", "subject", actor, 0)


def membership(partition: int, start: int, end: int, items: Sequence[Item], earliest_ms: int = 1) -> MembershipChanged:
    """A record with one label set per item, and an address column only if an item has an address of that family."""
    fours = b"".join(int(IPv4Address(item.address or 0)).to_bytes(4, "big") for item in items)
    sixes = b"".join(int(IPv6Address(item.address6 or 0)).to_bytes(16, "big") for item in items)
    return MembershipChanged(
        envelope("forwarder/a"),
        partition,
        start,
        end,
        earliest_ms,
        [item.zone for item in items],
        [item.name for item in items],
        [item.state for item in items],
        [item.created_ms for item in items],
        [item.uid for item in items],
        fours if any(fours) else b"",
        sixes if any(sixes) else b"",
        [dict(item.labels) for item in items],
        list(range(len(items))),
        [item.changed_ms or earliest_ms for item in items],
        [item.last_present_ms for item in items],
    )


# --- the oracle ------------------------------------------------------------------------------------------------------

Net = IPv4Network | IPv6Network
Device = dict[Rule, set[Net]]


def holders(state: FleetState) -> list[tuple[set[Address], Mapping[str, str]]]:
    """The addresses and labels that make an address reachable."""
    members = [(m.address4, m.address6, m.labels) for m in state.members.rows.values() if m.slot >= 0]
    parts = [(p.address4, p.address6, p.labels) for kept in state.retained.rows.values() for p in kept.states]
    return [(addresses_of(four, six), labels) for four, six, labels in members + parts]


def addresses_of(four: int, six: bytes) -> set[Address]:
    found: set[Address] = {IPv4Address(four)} if four else set()
    return found | ({IPv6Address(six)} if six else set())


def expected_table(state: FleetState, zone: str, policies: Iterable[Policy] | None = None) -> Device:
    """The table that a zone must have according to the rows, or with other policies."""
    info = state.zones.rows.get(zone)
    labels = info.labels if info is not None else {}
    sources: dict[Rule, set[Address]] = {}
    for policy in state.policies.rows.values() if policies is None else policies:
        if policy.zones.items() <= labels.items():
            found = sources.setdefault(policy.rule, set())
            for addresses, of_node in holders(state):
                if policy.sources.items() <= of_node.items():
                    found |= addresses
    return {rule: covered(found) for rule, found in sources.items() if found}


def covered(addresses: Iterable[Address]) -> set[Net]:
    fours = [a for a in addresses if isinstance(a, IPv4Address)]
    sixes = [a for a in addresses if isinstance(a, IPv6Address)]
    return {*collapse_addresses(map(IPv4Network, fours)), *collapse_addresses(map(IPv6Network, sixes))}


def copy(device: Device) -> Device:
    return {rule: set(found) for rule, found in device.items()}


def single_steps(delta: Delta) -> Iterator[tuple[bool, Rule, Net]]:
    """The prefixes of a delta in the order in which a device applies them: True for added, False for removed."""
    for step in delta.steps:
        for come in networks(step.add4, step.add6):
            yield True, step.rule, come
        for go in networks(step.remove4, step.remove6):
            yield False, step.rule, go


def take(device: Device, comes: bool, rule: Rule, net: Net) -> None:
    """Add a prefix to a device or remove it. Adding a present prefix or removing an absent one fails."""
    found = device.setdefault(rule, set())
    assert (net in found) != comes
    if comes:
        found.add(net)
    else:
        found.remove(net)
    if not found:
        del device[rule]


def applied(device: Device, delta: Delta) -> Device:
    """The device after a delta; a snapshot replaces its table."""
    after = copy(device) if delta.from_version else {}
    for comes, rule, net in single_steps(delta):
        take(after, comes, rule, net)
    return after


def digest_from_scratch(device: Device) -> bytes:
    total = 0
    for rule, found in device.items():
        for net in found:
            packed = net.network_address.packed + bytes((net.prefixlen,))
            total += digest_of(rule, packed, b"") if net.version == 4 else digest_of(rule, b"", packed)
    return to_bytes(total)


Probe = tuple[str, int]
"""A protocol and a port."""


def probes(rules: Iterable[Policy | Rule]) -> list[Probe]:
    """Traffic to probe: every protocol, and each port named by a rule with its two neighbours."""
    ports = {0, 65_535}
    for rule in rules:
        for port in rule.ports:
            ports |= {max(port - 1, 0), port, min(port + 1, 65_535)}
    return [("icmp", 0), ("other", 0), *((p, port) for p in ("tcp", "udp") for port in sorted(ports))]


def is_allowed(device: Device, address: Address, probe: Probe) -> bool:
    """The first matching rule decides; at one priority drop precedes allow; without a match the packet is denied."""
    for rule in sorted(device, key=lambda r: (-r.priority, r.action == "allow")):
        if _speaks_of(rule, probe) and any(address in net for net in device[rule]):
            return rule.action == "allow"
    return False


def _speaks_of(rule: Rule, probe: Probe) -> bool:
    protocol, port = probe
    if rule.protocol not in ("any", protocol):
        return False
    pairs = list(zip(rule.ports[::2], rule.ports[1::2], strict=True))
    return not pairs or any(first <= port <= last for first, last in pairs)


def actual_table(state: FleetState, zone: str, stage: int = 0) -> Device:
    """The table that the plane computed for a zone's DPUs of a stage."""
    found = {each.rule: each.prefixes.content() for each in table(state, zone, stage).sets}
    return {rule: set(networks(c.add4, c.add6)) for rule, c in found.items() if c.add4 or c.add6}


def holds(state: FleetState) -> list[HoldView]:
    """Views of the open holds, oldest first."""
    return [hold_view(state, row) for _, row in sorted(open_holds(state).items())]

"""The fleet fold compared with brute force: random membership, policies, labels, budgets, approvals and restarts.

After every record, an oracle with dicts and ipaddress computes the table of each zone from the rows. Devices at older
versions apply deltas to the newest one prefix at a time. Verdicts that turn from allow to deny are counted and compared
with the budgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventstore.folding.fold import Outcome
from eventstore.log import partition_of
from projections import name_index
from projections.fleet.membership import members
from projections.fleet.membership.tombstones import Tombstone
from projections.fleet.tables.zone_table import delta, snapshot, table
from projections.rules.rule import Delta
from schemas.events import Event
from tests.support.fleet import (
    PARTITIONS,
    Address,
    Device,
    Fleet,
    Item,
    Probe,
    actual_table,
    addresses_of,
    applied,
    copy,
    digest_from_scratch,
    expected_table,
    is_allowed,
    probes,
    saved_bytes,
    single_steps,
    take,
)
from tests.support.sometimes import Sometimes, sized
from tests.support.thresholds import with_threshold

ZONES = ("z0", "z2", "z4")
"""Zones; the last two share a partition."""

UNKNOWN_ZONE = "nowhere"
POLICIES = ("default", "p", "q", "r")
NAMES = tuple(f"n{i}" for i in range(7))
BASE4, BASE6 = int(IPv4Address("10.0.0.0")), int(IPv6Address("2001:db8::"))
WINDOW_MS = 600_000

addresses = st.one_of(st.just(""), st.integers(1, 9).map(lambda i: str(IPv4Address(BASE4 + i))))
addresses6 = st.one_of(st.just(""), st.just(""), st.integers(1, 4).map(lambda i: str(IPv6Address(BASE6 + i))))
labels = st.fixed_dictionaries({}, optional={"a": st.sampled_from("12"), "b": st.just("1")})
items = st.builds(
    Item,
    name=st.sampled_from(NAMES),
    zone=st.sampled_from(ZONES),
    address=addresses,
    address6=addresses6,
    labels=labels,
    state=st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4, 5, 9, 10)),
    created_ms=st.integers(1, 3),
    uid=st.sampled_from("uv"),
    changed_ms=st.integers(3, 6),
    last_present_ms=st.integers(0, 3),
)
traffic = st.sampled_from((("any", ()), ("icmp", ()), ("tcp", ()), ("tcp", (80, 90)), ("tcp", (85, 85, 443, 443))))
policies = st.builds(
    lambda priority, action, said, sources, zones: {
        "priority": priority,
        "action": action,
        "protocol": said[0],
        "ports": said[1],
        "sources": sources,
        "zones": zones,
    },
    st.integers(-1, 1),
    st.sampled_from(("allow", "allow", "drop")),
    traffic,
    labels,
    st.sampled_from(({}, {}, {"t": "1"})),
)
PROBES: tuple[Probe, ...] = (
    ("icmp", 0),
    ("other", 0),
    ("udp", 85),
    *(("tcp", port) for port in (79, 80, 85, 86, 91, 443, 444)),
)
Verdicts = dict[tuple[str, Address], set[Probe]]


SOMETIMES = Sometimes(
    "members joined",
    "members left",
    "an inferred leave",
    "a leave in another partition ended a member",
    "a late join was sent back",
    "a change was held",
    "a hold was approved",
    "a hold was rejected",
    "a table drops",
    "a device applied a delta",
    "history had no delta",
    "a restart with members",
    "an address was contested",
    "a contested address was granted",
)


def _ends(left: Tombstone, item: Item) -> bool:
    """Whether a leave ends a statement of another partition."""
    if item.created_ms == left.created_ms:
        return (
            item.changed_ms < left.last_present_ms <= left.left_ms
        )  # a later time is of a fast clock and decides nothing
    return item.created_ms < left.created_ms and item.changed_ms <= left.left_ms


class Twins(Fleet):
    """A fleet, and a second replica of it that is never read and never restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = Fleet()

    def apply(self, event: Event) -> Outcome:
        self.twin.offset, self.twin.now_ms = self.offset, self.now_ms
        outcome = super().apply(event)
        assert self.twin.apply(event) == outcome
        return outcome


class FleetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Twins()
        self.members: dict[str, Item] = {}
        self.left: dict[str, list[Tombstone]] = {}
        self.devices: dict[tuple[str, int], Device] = {}
        self.content: dict[str, tuple[int, Device]] = {}
        self.expected: dict[str, Device] = {}
        self.verdicts: Verdicts = {}
        self.spent: dict[str, list[tuple[int, int]]] = {}
        self.approved = False
        self.partition = {zone: partition_of(zone.encode(), PARTITIONS) for zone in ZONES}

    @initialize(small=st.booleans(), dropping=st.booleans())
    def choose_budgets(self, small: bool, dropping: bool) -> None:
        """Half of the runs have budgets that hold no change. Their tables follow from the present members alone."""
        self.small = small
        if dropping:
            self.fleet.policy("r", priority=1, action="drop", sources={"b": "1"})
        for kind in ("denied-by-leave", "denied-by-change", "allowed-by-change"):
            self.fleet.budget(kind, *((0, 2) if small else (1_000, 0)))

    @rule(found=st.lists(items, min_size=3, max_size=6, unique_by=lambda item: item.name))
    def many_members_change(self, found: list[Item]) -> None:
        self.members_change(found, 0)

    @rule(
        found=st.lists(items, min_size=1, max_size=4, unique_by=lambda item: item.name),
        passed=st.integers(0, 3),
        commands=st.sampled_from(("", "a", "ab", "aab")),
    )
    def members_change(self, found: list[Item], passed: int, commands: str = "") -> None:
        """Change members by items of one zone, which come from the given commands."""
        self.fleet.now_ms += passed * 100_000
        zone = found[0].zone
        held = {address: self._holders(address) for address in universe()}
        waiting = self._waiting()
        stated = [item._replace(zone=zone) for item in found]
        outcome = self.fleet.change(*stated, partition=self.partition[zone], commands=commands)
        self._no_agent_took_an_address(found, held)
        SOMETIMES.saw("an address was contested", bool(self._waiting() - waiting))
        granted = {(name, address) for name, address in waiting if name in self._holders(address)}
        SOMETIMES.saw("a contested address was granted", bool(granted - self._waiting()))
        assert outcome.code in (("done", "held") if self.small else ("done",)), outcome
        SOMETIMES.saw("a change was held", bool(self.fleet.state.holds.rows))
        SOMETIMES.saw("an inferred leave", any(item.state == 2 and item.name in self.members for item in found))
        for item in found:
            self._member_changes(item._replace(zone=zone))

    @rule(
        zone=st.sampled_from(ZONES),
        state=st.sampled_from((1, 2, 2)),
        verdict=st.sampled_from(("", "approve", "reject", "reject")),
    )
    def a_zone_empties(self, zone: str, state: int, verdict: str) -> None:
        """Withdraw more than a budget. Random rules alone would hardly ever do this."""
        there = [
            Item(name, zone, str(IPv4Address(BASE4 + i)), created_ms=3, uid="v", changed_ms=7)
            for i, name in enumerate(NAMES, 1)
        ]
        self.members_change(there, 0)
        self.everything_holds()
        self.members_change([item._replace(state=state, changed_ms=8, last_present_ms=7) for item in there], 0)
        if verdict and self.fleet.state.holds.rows:
            self.everything_holds()
            self.hold_decided(0, verdict)

    @rule(zone=st.sampled_from(ZONES), stayed=st.integers(0, 3))
    def a_hold_gets_other_nodes(self, zone: str, stayed: int) -> None:
        """Return all nodes of a hold while others of its command leave, which random rules would hardly ever do."""
        there = [
            Item(name, zone, str(IPv4Address(BASE4 + i)), created_ms=3, uid="v", changed_ms=7)
            for i, name in enumerate(NAMES, 1)
        ]
        gone = [item._replace(state=2, changed_ms=8, last_present_ms=7) for item in there]
        last = [*there[stayed:3], *gone[3:]], "b" * (3 - stayed) + "aaaa"
        for found, commands in ((there, "b"), (gone[:3], "a"), last):
            self.members_change(found, 0, commands)
            self.everything_holds()

    @rule(zone=st.sampled_from(ZONES), found=labels, state=st.sampled_from((0, 1, 2)))
    def an_agent_waits_for_an_address(self, zone: str, found: dict[str, str], state: int) -> None:
        """Free an address for which a node waits. Random rules alone would hardly ever do this."""
        holder = Item(NAMES[0], zone, str(IPv4Address(BASE4 + 10)), created_ms=3, uid="v", changed_ms=9)
        self.members_change([holder], 0)
        self.members_change([holder._replace(name=NAMES[1], labels=found, state=10)], 0)
        self.everything_holds()
        self.members_change([holder._replace(address="", state=state)], 0)

    @rule(name=st.sampled_from(NAMES), home=st.sampled_from(ZONES), state=st.sampled_from((1, 2)), late=st.booleans())
    def a_node_moves_and_leaves(self, name: str, home: str, state: int, late: bool) -> None:
        """Forward an older join before or after a leave of another partition, which random rules hardly ever do."""
        joined = Item(name, home, str(IPv4Address(BASE4 + 9)), created_ms=4, uid="u", changed_ms=5)
        other = next(zone for zone in ZONES if self.partition[zone] != self.partition[home])
        left = Item(name, other, state=state, created_ms=5, uid="v", changed_ms=7, last_present_ms=6)
        for item in (left, joined) if late else (joined, left):
            self.members_change([item], 0)
            self.everything_holds()

    def _holders(self, address: Address) -> set[str]:
        key = int(address) if address.version == 4 else address.packed
        slot_table = self.fleet.state.slot_table
        return {slot_table.names[slot] for slot in slot_table.address_index.slots_of(key)}

    def _waiting(self) -> set[tuple[str, Address]]:
        """Each node that waits for an address of another node, with the address."""
        rows = self.fleet.state.members.rows.items()
        return {(name, address) for name, row in rows for address in addresses_of(row.contested4, row.contested6)}

    def _no_agent_took_an_address(self, found: list[Item], held: dict[Address, set[str]]) -> None:
        """Check that a node gets an address stated by its agent only if it had it before or no other node has it."""
        for item in found:
            bits = item.state - 3
            stated = [text for bit, text in ((2, item.address), (4, item.address6)) if bits > 0 and bits & bit and text]
            for address in map(ip_address, stated):
                holders = self._holders(address)
                assert item.name in held[address] or holders == {item.name} or item.name not in holders, item

    def contested_addresses_are_held_by_others(self) -> None:
        state, found = self.fleet.state, dict[Any, set[str]]()
        for name, address in self._waiting():
            row = state.members.rows[name]
            assert (self._holders(address) or row.slot < 0) and name not in self._holders(address) and not row.held
            found.setdefault(int(address) if address.version == 4 else address.packed, set()).add(name)
        assert found == state.contested

    def _member_changes(self, item: Item) -> None:
        had, here = self.members.get(item.name), self.partition[item.zone]
        older = had is not None and (item.created_ms, item.changed_ms) < (had.created_ms, had.changed_ms)
        own = had if had is not None and self.partition[had.zone] == here else None
        SOMETIMES.saw("members joined", item.state == 0)
        if item.state in (0, *range(4, 11)):
            moved = item.state > 3 and (item.state - 3) & 1  # a node agent cannot move a node
            ended = own is None and any(
                found.partition != here and _ends(found, item) for found in self.left.get(item.name, ())
            )
            SOMETIMES.saw("a late join was sent back", ended)
            if not ended and (had is None or own is not None or not (older or moved)):
                self.members[item.name] = item
            return
        last, counts = (item.created_ms, item.last_present_ms), item.state != 3 and item.last_present_ms > 0
        if own is not None and own.created_ms > item.created_ms:
            last = (own.created_ms, own.changed_ms)
        tombstone = Tombstone(here, *last, item.changed_ms)
        if counts:
            known = [found for found in self.left.get(item.name, ()) if not tombstone.replaces(found)]
            self.left[item.name] = [*known, tombstone][-4:]
        elsewhere = own is None and had is not None and counts and _ends(tombstone, had)
        SOMETIMES.saw("a leave in another partition ended a member", elsewhere)
        if own is not None or elsewhere:
            del self.members[item.name]
            SOMETIMES.saw("members left")

    @rule(name=st.sampled_from(POLICIES), said=policies)
    def policy_set(self, name: str, said: dict[str, Any]) -> None:
        self.fleet.policy(name, **said)

    @rule(name=st.sampled_from(POLICIES))
    def policy_deleted(self, name: str) -> None:
        self.fleet.delete_policy(name)

    @rule(zone=st.sampled_from(ZONES), found=st.sampled_from(({}, {"t": "1"}, {"t": "2"})))
    def zone_relabelled(self, zone: str, found: dict[str, str]) -> None:
        self.fleet.describe(zone, found)

    @precondition(lambda self: self.fleet.state.holds.rows)
    @rule(which=st.integers(0, 9), verdict=st.sampled_from(("approve", "approve", "reject")))
    def hold_decided(self, which: int, verdict: str) -> None:
        holds = sorted(self.fleet.state.holds.rows.values(), key=lambda hold: hold.id)
        hold = holds[which % len(holds)]
        if verdict == "reject":
            before = {zone: actual_table(self.fleet.state, zone) for zone in ZONES}
            assert self.fleet.reject(hold.id).code == "done"
            assert before == {zone: actual_table(self.fleet.state, zone) for zone in ZONES}
            assert self.fleet.approve(hold.id, "bob").code == "refused"
            SOMETIMES.saw("a hold was rejected")
            return
        self.approved = True
        outcomes = [self.fleet.approve(hold.id, actor).code for actor in ("bob", "cid")]
        if outcomes == ["done", "held"]:  # the effect of the change grew since the hold was shown
            outcomes = [self.fleet.approve(hold.id, actor).code for actor in ("bob", "cid")]
        assert outcomes == ["done", "done"]
        assert str(hold.id) not in self.fleet.state.holds.rows
        SOMETIMES.saw("a hold was approved")

    @rule()
    def restarted(self) -> None:
        """Restart from saved rows: tables and digests stay the same, and only history is lost."""
        before = {zone: table(self.fleet.state, zone) for zone in (*ZONES, UNKNOWN_ZONE)}
        rows = saved_bytes(self.fleet.state)
        SOMETIMES.saw("a restart with members", bool(self.members))
        self.fleet.state = self.fleet.reload()
        assert saved_bytes(self.fleet.state) == rows
        for zone, was in before.items():
            found = table(self.fleet.state, zone)
            assert (found.version, found.digest, found.earliest_ms) == (was.version, was.digest, was.earliest_ms)

    @invariant()
    def everything_holds(self) -> None:
        self.members_equal_the_model()
        self.slots_are_dense_and_holds_account_for_all_former_states()
        self.contested_addresses_are_held_by_others()
        self.tables_equal_the_oracle()
        self.devices_reach_the_newest_version()
        self.withdrawals_stay_within_the_budget()

    def teardown(self) -> None:
        """Check that reads and restarts changed no row and no digest, by comparison with the second replica."""
        twin = self.fleet.twin.state
        assert saved_bytes(twin) == saved_bytes(self.fleet.state)
        for zone in (*ZONES, UNKNOWN_ZONE):
            assert table(twin, zone)[:2] == table(self.fleet.state, zone)[:2]

    def tables_equal_the_oracle(self) -> None:
        for zone in (*ZONES, UNKNOWN_ZONE):
            device = self.expected[zone] = expected_table(self.fleet.state, zone)
            found = table(self.fleet.state, zone)
            assert actual_table(self.fleet.state, zone) == device
            SOMETIMES.saw("a table drops", any(each.action == "drop" for each in device))
            assert found.digest == digest_from_scratch(device)
            assert applied({}, snapshot(self.fleet.state, zone)) == device
            version, content = self.content.get(zone, (0, {}))
            assert found.version >= version
            assert found.version > version or content == device
            self.content[zone] = (found.version, device)

    def devices_reach_the_newest_version(self) -> None:
        state = self.fleet.state
        for zone in ZONES:
            version, device = self.content[zone]
            for (of, since), had in list(self.devices.items()):
                if of != zone:
                    continue
                found = delta(state, zone, since)
                SOMETIMES.saw("history had no delta" if found is None else "a device applied a delta")
                if found is None:
                    del self.devices[of, since]
                    continue
                assert (found.from_version, found.to_version) == (since, version)
                self._never_worse(had, device, found)
            self.devices[zone, version] = device
            held = sorted(since for of, since in self.devices if of == zone)
            for since in held[1:-5]:
                del self.devices[zone, since]

    def _never_worse(self, had: Device, becomes: Device, found: Delta) -> None:
        """Check after each prefix of a delta that every verdict is one of the old or the new table."""
        asked = [(address, probe) for address in universe() for probe in probes([*had, *becomes])]
        old = {key: is_allowed(had, *key) for key in asked}
        new = {key: is_allowed(becomes, *key) for key in asked}
        now = copy(had)
        for step in single_steps(found):
            take(now, *step)
            touched = [key for key in asked if key[0] in step[2]]
            wrong = [key for key in touched if is_allowed(now, *key) not in (old[key], new[key])]
            assert not wrong, (step, wrong)
        assert now == becomes
        assert found.digest == digest_from_scratch(now)

    def withdrawals_stay_within_the_budget(self) -> None:
        """Check that each zone loses at most 2 addresses of each kind in 10 minutes without an approval."""
        found = dict(verdicts(self.expected))
        lost: dict[str, int] = {}
        for (zone, address), allowed in self.verdicts.items():
            if allowed - found.get((zone, address), set()):
                lost[zone] = lost.get(zone, 0) + 1
        self.verdicts = found
        if self.approved:
            self.approved = False
            return
        for zone, count in lost.items():
            self.spent.setdefault(zone, []).append((self.fleet.now_ms, count))
        since = self.fleet.now_ms - WINDOW_MS
        for zone, spent in self.spent.items():
            most = 4 if self.small else 1_000_000
            assert sum(count for when, count in spent if when > since) <= most, (zone, spent)

    def members_equal_the_model(self) -> None:
        state = self.fleet.state
        present = {name: row for name, row in state.members.rows.items() if not row.held}
        assert present.keys() == self.members.keys()
        for name, row in present.items():
            item = self.members[name]
            assert (row.zone, row.created_ms, row.uid, row.labels) == (
                item.zone,
                item.created_ms,
                item.uid,
                dict(item.labels),
            )
            assert row.slot >= 0 or str(row.delayed_by) in {**state.holds.rows, **state.rejected.rows}
        if not self.small:
            assert not state.holds.rows
            assert not state.retained.rows
            assert present.keys() == state.members.rows.keys()

    def slots_are_dense_and_holds_account_for_all_former_states(self) -> None:
        state = self.fleet.state
        slots = [row.slot for row in state.members.rows.values() if row.slot >= 0]
        parts = [(name, part) for name, kept in state.retained.rows.items() for part in kept.states]
        slots += [part.slot for _, part in parts]
        assert len(set(slots)) == len(slots)
        assert all(slot < len(state.slot_table.names) <= 2 * len(NAMES) * 40 for slot in slots)
        keeping: dict[int, set[str]] = {}
        for name, part in parts:
            keeping.setdefault(part.hold, set()).add(name)
            row = state.members.rows[name]
            assert row.slot < 0, "the newest state of a node has a slot while a hold keeps its former state"
            assert row.held or row.delayed_by == part.hold
        for name, row in state.members.rows.items():
            if row.delayed_by >= 0:
                keeping.setdefault(row.delayed_by, set()).add(name)
            assert row.held == (name not in self.members)
        recounted = self.fleet.reload().slot_table.count_by_bits()
        assert state.addresses_by_sets == {b: n for b, n in recounted.items() if n and b}
        for number in range(len(state.plan.lists)):
            allowed = sum(count for bits, count in recounted.items() if state.plan.allows(number, bits))
            assert state.allowed_by(number) == allowed
        holds = {
            hold.id: hold.nodes
            for hold in [*state.holds.rows.values(), *state.rejected.rows.values()]
            if not hold.policy_after and hold.subject == "members"
        }
        assert holds == {hold: len(names) for hold, names in keeping.items()}


def universe() -> list[Address]:
    return [*(IPv4Address(BASE4 + i) for i in range(12)), *(IPv6Address(BASE6 + i) for i in range(6))]


def verdicts(devices: dict[str, Device]) -> Iterator[tuple[tuple[str, Address], set[Probe]]]:
    for zone in ZONES:
        device = devices[zone]
        for address in universe():
            yield (zone, address), {probe for probe in PROBES if is_allowed(device, address, probe)}


TestFleet = sized(FleetMachine, 25, 25, SOMETIMES)
_THRESHOLDS = ((members, "_BATCH_LOOKUP_MIN"), (name_index, "_FEW"))
TestColumnarMembers = sized(with_threshold(FleetMachine, 0, *_THRESHOLDS), 25, 25, SOMETIMES)
"""The thresholds are zero, so that a single new member is added as columns and looked up as a column of names."""

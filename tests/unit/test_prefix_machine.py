"""The prefixes of a zone's table under any changes, compared with ipaddress and with devices that apply deltas.

Blocks of nodes join and leave, a few at a time or hundreds at once, because few changes update a set step by step and
many compute it anew. Tables are read between changes or not, replicas restart, and devices fall behind, reboot empty
and catch up. Devices apply frames by their own code, which shares none with the code that builds frames.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from projections.fleet.tables.rulesets import INCREMENTAL_MAX
from projections.fleet.tables.zone_table import delta, snapshot, table
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, apply, unpack
from projections.rules.rule import Delta
from tests.support.fleet import Fleet, Item, covered, digest_from_scratch
from tests.support.sometimes import Sometimes, sized

ZONE = "z0"
ALIGNED = 40
"""The node whose addresses begin a large block."""

BASE4, BASE6 = int(IPv4Address("10.0.0.0")) - ALIGNED, int(IPv6Address("2001:db8::")) - ALIGNED
MOST = 1_000
"""Number of nodes. The number of a node gives its address."""

STARTS = st.one_of(
    st.integers(0, 80), st.sampled_from([ALIGNED, ALIGNED + 64, ALIGNED + 256]), st.integers(0, MOST - 1)
)
FEW_NODES = st.sampled_from([1, 1, 1, 2, 3, 16, 64])

SOMETIMES = Sometimes(
    "a few addresses were added",
    "hundreds were added between two reads",
    "addresses were removed",
    "some were IPv6",
    "blocks of 64 merged into one prefix",
    "a device applied a delta over several versions",
    "history had no delta, and a device applied a snapshot",
    "a device rebooted empty",
    "a replica restarted",
    "the table was empty again",
)


def item(number: int, zone: str, six: bool, state: int = 0) -> Item:
    four, of_six = str(IPv4Address(BASE4 + number)), str(IPv6Address(BASE6 + number))
    return Item(f"n{number}", zone, "" if six else four, of_six if six else "", state=state)


class PrefixMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        for kind in ("denied-by-leave", "denied-by-change"):
            self.fleet.budget(kind, 1_000, 0)
        self.present: dict[int, bool] = {}
        self.unread = 0
        self.devices = [EMPTY_TABLE, EMPTY_TABLE]

    def change(self, wanted: range, six: bool, state: int) -> None:
        """Join these nodes, or remove them with `state` 1, in records of at most 500. Nodes already so are omitted."""
        numbers = [n for n in wanted if n < MOST and (n in self.present) == bool(state)]
        for start in range(0, len(numbers), 500):
            part = numbers[start : start + 500]
            self.fleet.change(*(item(n, ZONE, self.present.get(n, six) if state else six, state) for n in part))
        for number in numbers:
            if state:
                del self.present[number]
            else:
                self.present[number] = six
        self.unread += len(numbers)
        SOMETIMES.saw("addresses were removed" if state else "a few addresses were added", bool(numbers))
        SOMETIMES.saw("hundreds were added between two reads", not state and self.unread > INCREMENTAL_MAX)
        SOMETIMES.saw("some were IPv6", six and not state and bool(numbers))

    @rule(start=STARTS, count=FEW_NODES, six=st.booleans(), leaves=st.booleans())
    def some_change(self, start: int, count: int, six: bool, leaves: bool) -> None:
        self.change(range(start, start + count), six, int(leaves))

    @rule(start=st.integers(0, 200), count=st.integers(INCREMENTAL_MAX, 700), six=st.booleans(), leaves=st.booleans())
    def hundreds_change(self, start: int, count: int, six: bool, leaves: bool) -> None:
        self.change(range(start, start + count), six, int(leaves))

    @rule(block=st.integers(0, 3), six=st.booleans(), hole=st.integers(0, 63))
    def a_block_fills_up(self, block: int, six: bool, hole: int) -> None:
        """Fill a block except for one address, and then add that address: prefixes merge across all levels."""
        numbers = range(ALIGNED + 64 * block, ALIGNED + 64 * block + 64)
        self.change(range(numbers[hole], numbers[hole] + 1), six, 1)
        self.change(numbers[:hole], six, 0)
        self.change(numbers[hole + 1 :], six, 0)
        self.read()
        self.change(numbers[hole : hole + 1], six, 0)
        self.read()

    @precondition(lambda self: self.present)
    @rule(sure=st.integers(0, 3))
    def all_leave(self, sure: int) -> None:
        if sure:
            return
        self.change(range(MOST), False, 1)
        self.read()
        SOMETIMES.saw("the table was empty again")

    @rule()
    def read(self) -> None:
        """Check that the table is the smallest list of prefixes that contains exactly the present addresses."""
        found = table(self.fleet.state, ZONE)
        four = [IPv4Address(BASE4 + n) for n, six in self.present.items() if not six]
        expected = covered([*four, *(IPv6Address(BASE6 + n) for n, six in self.present.items() if six)])
        held = self.applied(EMPTY_TABLE, snapshot(self.fleet.state, ZONE))
        packed = {net.network_address.packed + bytes((net.prefixlen,)) for net in expected}
        assert {prefix for prefixes in held.rules.values() for prefix in prefixes} == packed
        assert found.digest == held.digest
        if held.rules:
            (rule_,) = held.rules
            assert found.digest == digest_from_scratch({rule_: expected})
        self.unread = 0
        SOMETIMES.saw(
            "blocks of 64 merged into one prefix",
            any(net.prefixlen <= (26 if net.version == 4 else 122) for net in expected),
        )

    @rule(which=st.integers(0, 1))
    def catch_up(self, which: int) -> None:
        """A device applies the delta from its version, or a snapshot if there is no delta."""
        had = self.devices[which]
        version = table(self.fleet.state, ZONE).version
        found = delta(self.fleet.state, ZONE, had.version) if had.version else None
        if found is None:
            SOMETIMES.saw("history had no delta, and a device applied a snapshot", had.version > 0)
            self.devices[which] = self.applied(had, snapshot(self.fleet.state, ZONE))
        else:
            assert (found.from_version, found.to_version) == (had.version, version)
            SOMETIMES.saw("a device applied a delta over several versions", version > had.version + 1)
            self.devices[which] = self.applied(had, found) if version > had.version else had
        assert self.devices[which].rules == self.applied(EMPTY_TABLE, snapshot(self.fleet.state, ZONE)).rules

    @precondition(lambda self: self.present)
    @rule(data=st.data(), comes=st.integers(0, MOST - 1))
    def somebody_is_asked_about(self, data: st.DataObject, comes: int) -> None:
        """Check that the prefix found for an address is a prefix of the table."""
        number = data.draw(st.one_of(st.just(comes), st.sampled_from(sorted(self.present))))
        (found,) = table(self.fleet.state, ZONE).sets or (None,)
        if found is None:
            return
        six = self.present.get(number, False)
        wanted = (BASE6 + number).to_bytes(16, "big") if six else BASE4 + number
        key = found.prefixes.prefix_of(wanted)
        assert (key is not None) == (number in self.present)
        if key is not None:
            content = found.prefixes.content()
            size = 17 if six else 5
            assert key.to_bytes(size, "big") in unpack(content.add4, content.add6)

    @rule(which=st.integers(0, 1))
    def reboot(self, which: int) -> None:
        SOMETIMES.saw("a device rebooted empty", self.devices[which].version > 0)
        self.devices[which] = EMPTY_TABLE

    @rule()
    def restart(self) -> None:
        before = table(self.fleet.state, ZONE)
        self.fleet.state = self.fleet.reload()
        after = table(self.fleet.state, ZONE)
        assert (after.version, after.digest) == (before.version, before.digest)
        SOMETIMES.saw("a replica restarted", bool(self.present))
        self.unread = 0

    def teardown(self) -> None:
        self.read()
        for which in range(len(self.devices)):
            self.catch_up(which)

    def applied(self, had: DeviceTable, frame: Delta) -> DeviceTable:
        after = apply(had, 1, frame, capacity=2 * MOST)
        assert isinstance(after, DeviceTable), after
        return after


TestPrefixes = sized(PrefixMachine, 60, 40, SOMETIMES)

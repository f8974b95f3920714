"""The zone fold compared with a model of its nodes, and forwards to fleet under delays, copies and losses.

Forwards come from the state of the zone or of a replica that lags, with the present mark or an earlier one. They land
in any order, late, twice, or never. Fleet is a model of its marks and also the real fold. After a last forward from the
present state, fleet has each node as the zone has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from eventstore.folding.fold import RecordMetadata
from eventstore.log import FLEET_0
from projections import name_index
from projections.fleet.fold import FleetFold
from projections.forwarding.zones_to_fleet import forward
from projections.zones.fold import ZonesFold
from projections.zones.state import ZonesState
from schemas.events import PRESENT, MembershipChanged, NodesLeft, NodesSuperseded
from tests.support.delivered_machine import DELIVERIES, DeliveredMachine
from tests.support.sometimes import Sometimes, sized
from tests.support.thresholds import with_threshold
from tests.support.zones import PARTITION, DeliveredZones, derived_of, internal_envelope, reloaded, replayed, rows_of

NAMES = st.sampled_from(["a", "b", "k/c", "k/d"])
ZONES = st.sampled_from(["z1", "z2"])
TIMES = st.integers(1, 4)
UIDS = st.sampled_from(["u", "v"])


SOMETIMES = Sometimes(
    "a node joined",
    "a node left",
    "a node moved to another zone",
    "an older incarnation was refused",
    "a leave was inferred",
    "a node was superseded",
    "a forward landed",
    "a forward was refused, as another had landed",
    *DELIVERIES,
)


class Known(NamedTuple):
    """A node, as the model and as fleet have it."""

    zone: str
    created_ms: int
    uid: str
    address4: int


def at_item(column: Sequence[Any], i: int) -> Any:
    return column[0 if len(column) == 1 else i]


class NodesMachine(DeliveredMachine):
    log: DeliveredZones
    sometimes = SOMETIMES

    def __init__(self) -> None:
        super().__init__()
        self.log = DeliveredZones()
        self.model: dict[str, Known] = {}
        self.mark = 0
        self.marks = [0]
        self.fleet: dict[str, Known] = {}
        self.fold = FleetFold(1)
        self.real = self.fold.initial_state(FLEET_0)
        self.fleet_end = 0
        self.sent: list[MembershipChanged] = []
        self.lists = 0

    # -- statements about nodes

    @rule(names=st.lists(NAMES, min_size=1, unique=True), zone=ZONES, created_ms=TIMES, uid=UIDS, address=TIMES)
    def join(self, names: list[str], zone: str, created_ms: int, uid: str, address: int) -> None:
        outcome = self.log.join(*names, zone=zone, created_ms=created_ms, uid=uid, address=address)
        refused = {item.name for item in outcome.items}
        for i, name in enumerate(names):
            old = self.model.get(name)
            assert (name in refused) == (old is not None and created_ms < old.created_ms)
            SOMETIMES.saw("an older incarnation was refused" if name in refused else "a node joined")
            if name not in refused:
                SOMETIMES.saw("a node moved to another zone", old is not None and old.zone != zone)
                self.model[name] = Known(zone, created_ms, uid, address + i)

    @rule(name=NAMES, zone=ZONES, address=TIMES)
    def change(self, name: str, zone: str, address: int) -> None:
        old = self.model.get(name)
        outcome = self.log.change(name, zone=zone, address=address)
        there = old is not None and old.zone == zone
        was = old.address4 if old is not None else 0
        assert outcome.code == ("refused" if not there else "unchanged" if address == was else "done")
        if there and old is not None:
            self.model[name] = old._replace(address4=address)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), created_ms=st.just(0) | TIMES)
    def leave_where_it_is(self, data: st.DataObject, created_ms: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.leave(name, self.model[name].zone, created_ms, self.model[name].uid)

    @rule(name=NAMES, zone=ZONES, created_ms=st.just(0) | TIMES, uid=UIDS)
    def leave(self, name: str, zone: str, created_ms: int, uid: str) -> None:
        old = self.model.get(name)
        self.log.leave(name, zone=zone, created_ms=created_ms, uid=uid)
        about = not created_ms or (old is not None and (old.created_ms < created_ms or (created_ms, uid) == old[1:3]))
        if old is not None and old.zone == zone and about:
            del self.model[name]
            SOMETIMES.saw("a node left")

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def infer_a_leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        old = self.model.pop(name)
        self.lists += 1
        source = name.partition("/")[0] if "/" in name else ""
        self.log.complete(b"%d" % self.lists, source=source, zone=old.zone)
        assert self.log.leave(name, zone=old.zone, list_hash=b"%d" % self.lists).code == "done"
        SOMETIMES.saw("a leave was inferred")

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def supersede(self, data: st.DataObject) -> None:
        """Fleet has a newer incarnation of another partition, and supersedes the incarnation of this zone."""
        name = data.draw(st.sampled_from(sorted(self.model)))
        old = self.model.pop(name)
        mark = self.log.state.fleet_mark
        columns = ([old.zone], [name], [old.created_ms], [old.uid])
        event = NodesSuperseded(internal_envelope(old.zone, self.log.now_ms), mark, mark + 1, *columns, self.log.end)
        assert self.log.append(event).code == "done"
        SOMETIMES.saw("a node was superseded")

    # -- forwards

    @rule(back=st.integers(0, 3), lag=st.integers(0, 6))
    def forward(self, back: int, lag: int) -> None:
        mark = self.marks[max(0, len(self.marks) - 1 - back)]
        event = forward(self.lagging(lag), 0, mark)
        if event is not None:
            assert event.from_offset == mark < event.to_offset <= self.log.end
            self.sent.append(event)

    def lagging(self, records: int) -> ZonesState:
        """The state of a replica that lags by this number of records."""
        if not records:
            return self.log.state
        fold = ZonesFold()
        state = fold.initial_state(PARTITION)
        for event, at in self.log.events[:-records]:
            decision = fold.decide(state, event, at)
            if decision.change is not None:
                fold.evolve(state, decision.change, at)
        return state

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), again=st.sampled_from([True, True, False]))
    def land(self, data: st.DataObject, again: bool) -> None:
        """Let a forward land in fleet. A copy may follow at once, or later."""
        event = data.draw(st.sampled_from(self.sent))
        if not again:
            self.sent.remove(event)
        else:
            self.apply_to_fleet(event)
        self.apply_to_fleet(event)

    def apply_to_fleet(self, event: MembershipChanged) -> None:
        at = RecordMetadata(FLEET_0, self.fleet_end, self.log.now_ms, self.log.now_ms)
        self.fleet_end += 1
        decision = self.fold.decide(self.real, event, at)
        if decision.change is not None:
            self.fold.evolve(self.real, decision.change, at)
        fits = event.from_offset == self.mark
        assert (decision.outcome.code != "refused") == fits, decision.outcome.reason
        assert self.real.marks.get(0, 0) == (event.to_offset if fits else self.mark)
        SOMETIMES.saw("a forward landed" if fits else "a forward was refused, as another had landed")
        if not fits:
            return
        self.mark = event.to_offset
        self.marks.append(self.mark)
        for i, name in enumerate(event.names):
            address = int.from_bytes(event.addresses4[4 * i : 4 * i + 4], "big")
            if at_item(event.states, i) == PRESENT:
                zone, created_ms, uid = (at_item(c, i) for c in (event.zones, event.created_ms, event.uids))
                self.fleet[name] = Known(zone, created_ms, uid, address)
            else:
                self.fleet.pop(name, None)

    @rule()
    def prune(self) -> None:
        if self.mark:
            self.log.forwarded(self.mark)

    @rule()
    def acknowledge_a_record_that_does_not_exist(self) -> None:
        assert self.log.forwarded(self.log.end + 1).code == "refused"

    def another(self) -> NodesLeft:
        return NodesLeft(self.log.envelope(), "z1", ["a"], [], [], False, b"")

    # -- invariants

    @invariant()
    def nodes_equal_the_model(self) -> None:
        rows = self.log.state.nodes.rows
        assert {n: Known(r.zone, r.created_ms, r.uid, r.address4) for n, r in rows.items()} == self.model

    @invariant()
    def the_outbox_has_no_more_rows_than_nodes(self) -> None:
        state = self.log.state
        assert state.outbox_offsets == sorted(state.outbox_offsets) == list(state.outbox)
        assert len(state.outbox_offsets) <= len(state.nodes.rows) + len(state.tombstones.rows) <= 8

    @invariant()
    def a_restart_changes_nothing(self) -> None:
        copy = reloaded(self.log.state)
        assert derived_of(copy) == derived_of(self.log.state)
        assert forward(copy, 0, self.mark) == forward(self.log.state, 0, self.mark)

    def teardown(self) -> None:
        self.log.delivered.check_replicas()
        assert rows_of(replayed(self.log)) == rows_of(self.log.state)
        while (event := forward(self.log.state, 0, self.mark)) is not None:
            self.apply_to_fleet(event)
        assert self.fleet == self.model
        members = self.real.members.rows.items()
        there = {n: Known(m.zone, m.created_ms, m.uid, m.address4) for n, m in members if not m.held}
        assert there == self.model
        self.log.forwarded(self.mark)
        assert not self.log.state.outbox and not self.log.state.tombstones.rows


TestNodesMachine = sized(NodesMachine, 100, 50, SOMETIMES)


TestColumnsMachine = sized(with_threshold(NodesMachine, 1, (name_index, "_FEW")), 100, 50, SOMETIMES)
"""The threshold is 1, so that two nodes are already looked up as columns."""

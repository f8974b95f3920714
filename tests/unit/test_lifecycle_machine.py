"""Requests, valid statements and invalid ones in any order: limits hold, attempt numbers rise, and replays agree."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from projections.zones.dpus.lifecycle import REQUESTS
from projections.zones.dpus.phases import ERROR, INSTALLING, PENDING, READY
from schemas.events import NodesLeft
from tests.support.delivered_machine import DELIVERIES, DeliveredMachine
from tests.support.sometimes import Sometimes, sized
from tests.support.zones import (
    DeliveredZones,
    check_dpus,
    derived_of,
    installing,
    limits,
    reloaded,
    replayed,
    rows_of,
    unavailable,
)

DPUS = ("a", "b", "c", "d", "e")
NAMES = st.sampled_from(DPUS)
NODES = st.sampled_from(["n1", "n2", ""])
SERIALS = st.sampled_from(["", "s", "t"])
IMAGES = st.sampled_from(["", "i", "j"])
KINDS_OF_FAILURE = ("transient", "transient", "device", "operator", "lost")
KINDS = st.sampled_from(KINDS_OF_FAILURE)


SOMETIMES = Sometimes(
    "a DPU waited in the queue",
    "a DPU is ready",
    "a DPU needs an operator",
    "a DPU was deleted",
    "the limit of installs was reached",
    "a step failed",
    "a deadline passed",
    "a refusal",
    *DELIVERIES,
)


class LifecycleMachine(DeliveredMachine):
    log: DeliveredZones
    sometimes = SOMETIMES

    def __init__(self) -> None:
        super().__init__()
        self.log = DeliveredZones()
        self.log.limit(2, 2)
        self.had: dict[int, str] = {}
        self.attempts: dict[str, int] = {}
        self.before = (0, 0)
        self.registered: tuple[object, dict[int, str]] = (None, {})

    @rule(name=NAMES, node=NODES, serial=SERIALS)
    def register(self, name: str, node: str, serial: str) -> None:
        self.log.register(name, node=node, serial=serial)

    @rule(name=NAMES, request=st.sampled_from(REQUESTS + ("provision",) * 4), image=IMAGES)
    def request(self, name: str, request: str, image: str) -> None:
        outcome = self.log.request(name, request, image if request == "provision" else "")
        row = self.log.state.dpus.rows.get(name)
        if outcome.code == "waiting":
            assert row is not None and row.phase == PENDING
            line = [n for n, d in self.log.state.dpus.rows.items() if d.phase == PENDING]
            assert 1 <= outcome.result["queue_position"] <= len(line) and outcome.reason
        elif outcome.code == "done":
            assert row is None or row.phase != PENDING
        SOMETIMES.saw("a DPU waited in the queue", outcome.code == "waiting")
        SOMETIMES.saw("a refusal", outcome.code == "refused")

    @rule(names=st.lists(NAMES, min_size=1, max_size=4, unique=True), image=st.sampled_from(["i", "j"]))
    def catch_up(self, names: list[str], image: str) -> None:
        """Lead DPUs through all phases. Random rules alone would hardly ever do this."""
        for name in names:
            self.register(name, "" if name in "ab" else "n1", "")
            self.request(name, "provision", image)
        for _ in range(12):
            self.go_on(names, "")

    @rule(
        names=st.lists(NAMES, min_size=1, max_size=5, unique=True),
        kind=st.sampled_from(["", "", "", *KINDS_OF_FAILURE]),
    )
    def go_on(self, names: list[str], kind: str) -> None:
        """Start and end one step of each of these DPUs, if it has a step."""
        for name in names:
            index = self.log.state.dpu_index
            if name in index.open and not self.log.row(name).paused:
                self.log.wait_for_backoff(name)
                assert self.log.start(name).code == "done"
            if name in index.running:
                self.end_of(name, kind, "")
            self.limits_hold()

    @rule(name=NAMES, image=st.sampled_from(["i", "j"]), kind=st.sampled_from(["operator", "operator", "device"]))
    def break_down(self, name: str, image: str, kind: str) -> None:
        self.register(name, "", "")
        self.request(name, "provision", image)
        for _ in range(4):
            self.go_on([name], kind)

    @rule(name=NAMES, image=st.sampled_from(["i", "j"]), late=st.booleans())
    def hang(self, name: str, image: str, late: bool) -> None:
        """Start a step that never reports a result."""
        self.register(name, "", "")
        self.request(name, "provision", image)
        if name in self.log.state.dpu_index.open and not self.log.row(name).paused:
            self.log.wait_for_backoff(name)
            assert self.log.start(name).code == "done"
            self.log.now_ms = max(self.log.now_ms, self.log.row(name).deadline_ms if late else 0)
            self.deadline_of(name)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.request(name, "delete", "")
        for _ in range(3):
            self.go_on([name], "")

    @rule(installs=st.integers(-1, 3), nodes=st.integers(-1, 3))
    def limit(self, installs: int, nodes: int) -> None:
        self.log.limit(installs, nodes)

    @precondition(lambda self: self.log.state.dpu_index.open)
    @rule(data=st.data(), actor=st.sampled_from(["p1", "p2"]))
    def start(self, data: st.DataObject, actor: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.log.state.dpu_index.open)))
        paused = self.log.row(name).paused
        self.log.wait_for_backoff(name)
        assert self.log.start(name, actor).code == ("refused" if paused else "done")

    @precondition(lambda self: self.log.state.dpu_index.running)
    @rule(data=st.data(), fails=st.booleans(), kind=KINDS, serial=SERIALS)
    def end(self, data: st.DataObject, fails: bool, kind: str, serial: str) -> None:
        self.end_of(data.draw(st.sampled_from(sorted(self.log.state.dpu_index.running))), kind if fails else "", serial)

    def end_of(self, name: str, kind: str, serial: str) -> None:
        """End the running step of a DPU: by a failure of this kind, or successfully if no kind is given."""
        if kind:
            assert self.log.fail(name, kind).code == "done"
        else:
            assert self.log.succeed(name, {"serial": serial} if serial else {}).code == "done"
        row = self.log.state.dpus.rows.get(name)
        assert row is None or row.step_state != "running"
        SOMETIMES.saw("a step failed", bool(kind))
        SOMETIMES.saw("a DPU was deleted", row is None)
        SOMETIMES.saw("a DPU is ready", row is not None and row.phase == READY)
        SOMETIMES.saw("a DPU needs an operator", row is not None and row.phase == ERROR)

    @precondition(lambda self: self.log.state.dpus.rows)
    @rule(data=st.data(), off=st.integers(-2, 2).filter(bool), fails=st.booleans())
    def report_an_attempt_that_does_not_run(self, data: st.DataObject, off: int, fails: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.log.state.dpus.rows)))
        number = max(0, self.log.row(name).attempt + off)
        before = rows_of(self.log.state)
        outcome = self.log.fail(name, attempt=number) if fails else self.log.succeed(name, attempt=number)
        assert outcome.code == "refused" and rows_of(self.log.state) == before

    @precondition(lambda self: self.log.state.dpu_index.running)
    @rule(data=st.data(), late=st.booleans())
    def pass_a_deadline(self, data: st.DataObject, late: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.log.state.dpu_index.running)))
        row = self.log.row(name)
        if late:
            self.log.now_ms = max(self.log.now_ms, row.deadline_ms)
        self.deadline_of(name)

    def deadline_of(self, name: str) -> None:
        row = self.log.row(name)
        reached = self.log.now_ms + 1 >= row.deadline_ms
        assert self.log.expire(name, row.deadline_ms).code == ("done" if reached else "refused")
        SOMETIMES.saw("a deadline passed", reached)

    def another(self) -> NodesLeft:
        return NodesLeft(self.log.envelope(), "z1", ["n1"], [], [], False, b"")

    # -- invariants

    @invariant()
    def limits_hold(self) -> None:
        """Check that no count rises above its limit. A count may stay above a limit that was lowered."""
        now = (len(installing(self.log.state)), len(unavailable(self.log.state)))
        for count, before, limit in zip(now, self.before, limits(self.log.state), strict=True):
            assert count <= max(before, limit)
        SOMETIMES.saw("the limit of installs was reached", now[0] == limits(self.log.state)[0] > 0)
        self.before = now

    @invariant()
    def a_limit_holds_back_every_waiting_dpu(self) -> None:
        """Check that a limit holds back each DPU in the queue that is not paused."""
        rows = self.log.state.dpus.rows
        installs, nodes = limits(self.log.state)
        out = unavailable(self.log.state)
        if len(installing(self.log.state)) >= installs:
            return
        for name, dpu in rows.items():
            if dpu.phase == PENDING and not dpu.paused:
                assert not dpu.effect and (dpu.node or f"/{name}") not in out and len(out) >= nodes

    @invariant()
    def attempts_only_grow(self) -> None:
        for name, dpu in self.log.state.dpus.rows.items():
            assert dpu.attempt >= self.attempts.get(name, 0)
            self.attempts[name] = dpu.attempt

    @invariant()
    def rows_and_index_fit(self) -> None:
        check_dpus(self.log.state)
        zone = self.log.state.dpu_index.zone("z1")
        assert zone.installing == sum(d.phase in INSTALLING for d in self.log.state.dpus.rows.values())
        assert sorted(zone.names) == sorted(d.ordinal for d in self.log.state.dpus.rows.values())
        assert all(self.had.setdefault(ordinal, name) == name for ordinal, name in zone.names.items())
        now = (self.log.state.dpu_index.registrations, dict(zone.names))
        assert now[1] == self.registered[1] or now[0] != self.registered[0], "relays compare only the registrations"
        self.registered = now

    @invariant()
    def a_restart_changes_nothing(self) -> None:
        assert derived_of(reloaded(self.log.state)) == derived_of(self.log.state)

    def teardown(self) -> None:
        self.log.delivered.check_replicas()
        assert rows_of(replayed(self.log)) == rows_of(self.log.state)


TestLifecycleMachine = sized(LifecycleMachine, 80, 50, SOMETIMES)

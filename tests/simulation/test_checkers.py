"""Every checker catches what it is for: bugs built into a run, and histories that no plane of ours should write."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

import drivers.forwarder
import drivers.relay_zones
import eventstore.partition
import projections.fleet
from drivers.backends.bmc import Task
from eventstore.fold import DONE, At, Decision, Outcome
from eventstore.ids import uuid7
from eventstore.ledger import Ledger
from eventstore.log import CLIQUES, ZONES, Partition, Record
from eventstore.replica import Answer
from eventstore.snapshots import Head
from projections.clique_state import Member
from projections.fleet_state import FleetState
from projections.forwarding import forward
from projections.joins import decide_membership
from projections.zone_state import ZoneState
from schemas import events as e
from tests.simulation import checkers, model
from tests.simulation.fresh import Step
from tests.simulation.history import Claimed, History, Seen, Told
from tests.simulation.run import simulate

BUGGY_S = 30.0
ZONES_0 = Partition(ZONES, 0)
ID = uuid7(1_700_000_000_000, random.Random(1))


# --- bugs in the plane, caught in a run -----------------------------------------------------------------------------


def is_caught(fault: str, *seeds: int) -> bool:
    """Whether one of these seeds says so; a bug need not show in every run."""
    runs = (simulate(seed, faulty_s=BUGGY_S, converges_within_s=20.0) for seed in seeds)
    return any(fault in found for run in runs for found in run.faults)


def test_a_ledger_without_memory_lets_commands_take_effect_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Ledger):
        def remember(self, *_: object) -> None:
            """Not at all."""

    monkeypatch.setattr(eventstore.partition, "Ledger", Forgetful)
    assert is_caught("took effect 2 times", 2, 9, 12)


def test_a_forwarder_that_skips_a_node_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def skipping(state: ZoneState, partition: int, mark: int) -> e.MembershipChanged | None:
        found = forward(state, partition, mark)
        return None if found is None else replace(found, to_offset=found.to_offset + 3)

    monkeypatch.setattr(drivers.forwarder, "forward", skipping)
    assert is_caught("zones say", 2, 9, 12)


def test_a_fleet_that_takes_any_range_takes_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(state: FleetState, event: e.MembershipChanged, at: At) -> Decision:
        mark = state.marks.get(event.cause_partition, 0)
        return decide_membership(state, replace(event, from_offset=mark, to_offset=max(event.to_offset, mark + 1)), at)

    monkeypatch.setattr(projections.fleet, "decide_membership", trusting)
    assert is_caught("at mark", 2, 9, 12)


def test_a_relay_that_ignores_digests_leaves_liars_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers.relay_zones.Zone, "digest", lambda self, version: None)
    assert is_caught("says version", *range(2, 14))


def test_a_restart_that_forgets_ids_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "load", lambda self, floor, saved: None)
    assert is_caught("than a fresh fold has", *range(2, 14))


# --- histories that are wrong ---------------------------------------------------------------------------------------


def step(event: e.Event, *, offset: int = 5, answer: Answer | None = None, rows: Any = None) -> Step:
    record = Record(offset, 0, b"", b"")
    return Step(ZONES_0, record, event, answer, rows or {}, b"digest", b"running")


def left(command_id: str = ID) -> e.NodesLeft:
    return e.NodesLeft(e.Envelope(command_id, "z", "c", 0), "z", ["n"], [], [], False, b"")


def answer(outcome: Outcome = DONE, offset: int = 5) -> Answer:
    return Answer(outcome, ZONES_0, offset)


def told(found: Answer, command_id: str = ID) -> History:
    history = History()
    history.told.append(Told(1.0, "c", "p", left(command_id), ZONES_0, found))
    return history


def test_answers() -> None:
    steps = {ZONES_0: [step(left(), answer=answer())]}
    assert not list(checkers.check_answers(told(answer()), steps))
    assert list(checkers.check_answers(told(answer(offset=6)), steps)), "no such record"
    assert list(checkers.check_answers(told(answer(Outcome("refused", "no"))), steps)), "another outcome"
    other = uuid7(1_700_000_000_000, random.Random(2))
    assert list(checkers.check_answers(told(answer(), other), steps)), "another command's record"


def test_effects() -> None:
    rows = {"nodes": [("n", None)]}
    once = step(left(), answer=answer(), rows=rows)
    assert not list(checkers.check_effects({ZONES_0: [once, step(left(), offset=7, answer=answer())]}))
    assert list(checkers.check_effects({ZONES_0: [once, step(left(), offset=7, answer=answer(offset=7), rows=rows)]}))
    assert list(checkers.check_effects({ZONES_0: [step(left(), answer=answer(Outcome("refused", "no")), rows=rows)]}))
    assert list(checkers.check_effects({ZONES_0: [step(left(), offset=7, answer=answer(), rows=rows)]})), "a copy"


def test_claims() -> None:
    history, steps = History(), {ZONES_0: [step(left())]}
    head = Head("log", 6, 0, 1, b"digest", b"running", b"", 5, b"", 0, "")
    history.claims.append(Claimed("p", ZONES_0, head))
    assert not list(checkers.check_claims(history, steps))
    for wrong in ({"digest": b"x"}, {"running": b"x"}, {"position": 7}):
        history.claims[:] = [Claimed("p", ZONES_0, replace(head, **wrong))]
        assert list(checkers.check_claims(history, steps)), wrong


def test_devices() -> None:
    zones, tables = {"d": "z"}, {"z": {3: b"3", 5: b"5"}}

    def faults(*seen: tuple[int, int, bytes]) -> list[str]:
        return list(checkers.check_devices((Seen(0.0, "d", boot, 1, v, d) for boot, v, d in seen), zones, tables))

    assert not faults((0, 3, b"3"), (0, 5, b"5"), (1, 3, b"3"))
    assert faults((0, 5, b"5"), (0, 3, b"3")), "back within a boot"
    assert faults((0, 4, b"3")), "a version that never was"
    assert faults((0, 5, b"3")), "another content"


def test_freezes() -> None:
    freezes = [checkers.Freeze("z", 10, 20, 5.0)]

    def faults(at_s: float, version: int) -> list[str]:
        return list(checkers.check_freezes([Seen(at_s, "d", 0, 1, version, b"")], {"d": "z"}, freezes))

    assert not faults(1.0, 10), "from before the freeze"
    assert not faults(6.0, 15), "after the thaw"
    assert faults(4.0, 15), "changed in the freeze, written before the thaw"


def test_bmcs() -> None:
    started = e.StepStarted(e.Envelope("", "d", "p", 0), "z", "d", "OS Installing", 4, "p#1")
    steps = {ZONES_0: [step(started, rows={"dpus": []} | {"dpus": [("d", None)]})]}

    def faults(*told: tuple[int, str]) -> list[str]:
        tasks = [Task("t", action, "", token, "done", 100) for token, action in told]
        return list(checkers.check_bmcs({"d": tasks}, steps))

    assert not faults((4, "install"))
    assert faults((4, "install"), (4, "install")), "twice by one attempt"
    assert faults((4, "reboot")), "not what the attempt is for"
    assert faults((5, "install")), "an attempt that the log does not know"


def test_cliques() -> None:
    def faults(*rows: tuple[str, str, int, str]) -> list[str]:
        cliques, wrong = model.Cliques(), []
        for key, standing, last, uid in rows:
            row = Member(standing, last, 0, "", 0, uid, 0)  # type: ignore[arg-type]
            found = Step(Partition(CLIQUES, 0), Record(1, 0, b"", b""), None, None, {"members": [(key, row)]}, b"", b"")
            cliques.after(None, found)
            wrong = cliques.faults
        return wrong

    assert not faults(("d/c/a", "holds", 0, "u"), ("d/c/b", "holds", 1, "u"), ("d/c/a", "left", 0, "u"))
    assert faults(("d/c/a", "holds", 0, "u"), ("d/c/b", "holds", 0, "u")), "one index, two nodes"
    assert faults(("d/c/a", "holds", 1, "u")), "not dense"
    assert faults(("d/c/a", "holds", 0, "u"), ("d/c/a", "holds", 1, "u")), "changed under an incarnation"
    assert faults(("d/c/a", "holds", 0, "u"), ("d/x/a", "holds", 0, "u")), "two cliques of a domain"
    assert faults(("d/c/a", "holds", 18, "u")), "beyond the capacity"


def test_nodes() -> None:
    joined = e.NodesJoined(e.Envelope(ID, "z", "c", 7), "z", ["n"], [], [], b"", b"", [], [])
    fleet = FleetState(1)
    stays = model.newest([step(joined, answer=answer())])
    assert list(model.check_nodes(stays, fleet)), "stated, and nowhere"
    leaves = model.newest([step(joined, answer=answer()), step(left(), offset=6, answer=answer(offset=6))])
    assert not list(model.check_nodes(leaves, fleet))

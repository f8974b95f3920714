"""Refusals of the clique fold, and its distinction between a late copy and a new statement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventstore.folding.fold import Outcome, refused
from projections.field_checks import MAX_AHEAD_MS
from schemas.events import Envelope, IndicesClaimed, OutboxAcknowledged, SessionExpired, SessionOpened
from tests.support.cliques import START_MS, CliquesPartition, reloaded

_ALPHABET = "must be 1 to 128 letters, digits, '.', '_' and '-', the first a letter or digit"


@pytest.fixture
def log() -> CliquesPartition:
    return CliquesPartition()


_ABOUT: dict[str, Callable[[CliquesPartition], Outcome]] = {
    "claim": lambda log: log.claim("n", "u"),
    "release": lambda log: log.release("n"),
    "resize": lambda log: log.resize(3),
    "ready": lambda log: log.ready("n"),
    "session": lambda log: log.open_session("n", "s"),
    "expired": lambda log: log.expire_session("n", "s"),
}


@pytest.mark.parametrize("about", _ABOUT)
def test_a_malformed_key_is_refused_with_its_field(about: str) -> None:
    assert _ABOUT[about](CliquesPartition("a b", "c")) == refused(f"domain: 'a b' {_ALPHABET}")
    assert _ABOUT[about](CliquesPartition("d", "a b")) == refused(f"clique: 'a b' {_ALPHABET}")


def test_a_session_id_must_be_printable_text(log: CliquesPartition) -> None:
    log.claim("n", "u")
    text = "must be at most 253 printable characters on one line"
    assert log.open_session("n", "s\n") == refused(f"session: 's\\n' {text}")
    assert log.open_session("n", "") == refused("session: '' must not be empty")
    opened = SessionOpened(Envelope("", "", "test", 0), "d", "c", "n", "u", "s", "edge\n")
    assert log.append(opened) == refused(f"edge: 'edge\\n' {text}")
    assert not log.view().members[0].session_alive


def test_an_unchanged_outcome_has_a_reason(log: CliquesPartition) -> None:
    log.now_ms = START_MS + 100
    log.claim("n", "u", issued_ms=START_MS + 50)
    late = log.release("n", "u", issued_ms=START_MS + 40, internal=True)
    assert late == Outcome("unchanged", "uid: 'u' claimed the index later and keeps it")
    assert log.release("n", "v") == Outcome("unchanged", "uid: 'v' must be 'u', which node 'n' runs now")
    log.open_session("n", "s")
    assert log.open_session("n", "s") == Outcome("unchanged", "session: 's' is this one or a newer one")
    assert log.expire_session("n", "t") == Outcome("unchanged", "session: 't' is not the session that is open")
    assert log.indices() == {"n": 0}


def test_a_session_is_at_an_edge_and_a_node_without_one_cannot_be_ready(log: CliquesPartition) -> None:
    log.claim("n", "u")
    log.open_session("n", "s")
    assert log.state.members.rows["d/c/n"].edge == "edge-1"
    log.expire_session("n", "s")
    assert log.ready("n").reason == "session: 's' has expired, so its daemon cannot be ready"
    assert log.ready("n", False).code == "done"
    log.open_session("n", "s2")
    assert log.ready("n").code == "done"


@pytest.mark.parametrize("internal", [True, False])
def test_statements_of_one_millisecond_count_in_log_order(log: CliquesPartition, internal: bool) -> None:
    """Times have whole milliseconds, so a statement with the time of the last one is new, and not a late copy."""
    log.now_ms = START_MS + 100
    log.claim("n", "u", issued_ms=START_MS + 10, address="10.0.0.1", internal=internal)
    log.claim("n", "u", issued_ms=START_MS + 10, address="10.0.0.2", internal=internal)
    assert log.view().members[0].address == "10.0.0.2"
    log.ready("n", True, issued_ms=START_MS + 20)
    assert log.ready("n", False, issued_ms=START_MS + 20).code == "done"
    log.open_session("n", "s", issued_ms=START_MS + 30)
    log.open_session("n", "t", issued_ms=START_MS + 30)
    log.expire_session("n", "t")
    assert not log.view().members[0].session_alive


def test_a_late_copy_restores_neither_address_nor_readiness(log: CliquesPartition) -> None:
    log.now_ms = START_MS + 100
    log.claim("n", "u", issued_ms=START_MS + 10, address="10.0.0.1", internal=True)
    log.claim("n", "u", issued_ms=START_MS + 30, address="10.0.0.2", internal=True)
    log.claim("n", "u", issued_ms=START_MS + 20, address="10.0.0.1", internal=True)
    assert log.view().members[0].address == "10.0.0.2"
    assert (
        log.ready("n", issued_ms=START_MS + 29).reason
        == f"issued_at_ms: {START_MS + 29} is before that of the last report"
    )
    assert log.ready("n", issued_ms=START_MS + 30).code == "done"


def test_an_old_command_does_not_make_older_statements_count(log: CliquesPartition) -> None:
    """An old command takes effect, but the time of the newest statement stays the same."""
    log.now_ms = START_MS + 100
    log.claim("n", "u", issued_ms=START_MS + 40, address="10.0.0.1", internal=True)
    log.claim("n", "u", issued_ms=START_MS + 10, address="10.0.0.2")
    log.claim("n", "u", issued_ms=START_MS + 20, address="10.0.0.3", internal=True)
    assert log.view().members[0].address == "10.0.0.2"


def test_a_repeated_statement_writes_no_row(log: CliquesPartition) -> None:
    """Daemons repeat statements every few seconds, and each written row would be saved and sent to watchers again."""
    log.resize(3)
    log.claim("n", "u")
    log.ready("n", issued_ms=START_MS + 1)
    for event in (log.events[0][0], log.events[2][0]):
        decision = log.fold.decide(log.state, event, log.events[2][1])
        assert (decision.change, decision.outcome.code) == (None, "unchanged")


def test_an_event_of_another_topic_is_refused_by_its_name(log: CliquesPartition) -> None:
    refused = log.append(OutboxAcknowledged(Envelope("", "", "", 0), 1))
    assert refused.reason == "event: OutboxAcknowledged is not an event of the cliques topic"


def test_a_waiting_node_gets_its_last_index_if_free_or_the_lowest(log: CliquesPartition) -> None:
    """Peers look a node up by a name that contains its index, so the index should stay the same if possible."""
    log.fill(4)
    for node in ("n0", "n1", "n3"):
        log.release(node)
    log.release("n2")
    log.resize(1)
    for node in ("x", "n3", "n0", "n2", "y"):
        log.claim(node, f"again-{node}")
    assert log.waiting_nodes() == ["n3", "n0", "n2", "y"]
    log.resize(4)
    assert log.indices() == {"x": 0, "n0": 1, "n2": 2, "n3": 3}
    served = len(log.events) - 1
    assert [log.state.members.rows[f"d/c/{node}"].since == (served, 0) for node in ("n0", "n2", "n3", "x")] == [
        *[True] * 3,
        False,
    ]
    assert log.waiting_nodes() == ["y"]


def test_a_last_index_beyond_the_capacity_is_not_assigned(log: CliquesPartition) -> None:
    log.fill(4)
    for node in ("n0", "n1", "n2", "n3"):
        log.release(node)
    log.resize(1)
    log.claim("x", "u")
    log.claim("n3", "again")
    log.resize(3)
    assert log.indices() == {"x": 0, "n3": 1}


def test_index_zero_is_treated_as_any_other_index(log: CliquesPartition) -> None:
    log.fill(2)
    log.release("n0")
    log.release("n1")
    log.resize(1)
    log.claim("n1", "again")
    log.claim("n0", "again")
    log.claim("n1", "again")
    log.resize(2)
    assert log.indices() == {"n1": 0, "n0": 1}
    reason = "requested_index: 1 cannot replace 0, which node 'n1' holds while its pod runs"
    log.release("n0")
    assert log.claim("n1", "again", requested_index=1).reason == reason
    assert log.claim("n1", "again", requested_index=0).result["index"] == 0


def test_a_requested_index_beyond_the_capacity_is_refused_with_the_range(log: CliquesPartition) -> None:
    log.resize(4)
    assert (
        log.claim("n", "u", requested_index=4).reason
        == "requested_index: 4 must be from 0 to 3, the clique's capacity less 1"
    )
    malformed = log.claim("n", "u", requested_index=-2)
    assert malformed.reason == "requested_indices[0]: -2 must be from -1 to 4095, -1 for none"
    assert log.claim("n", "u", requested_index=3).result["index"] == 3
    held = "requested_index: 3 is held by node 'n', and a claim cannot take it over"
    assert log.claim("m", "v", requested_index=3).reason == held


def test_a_pod_may_be_at_most_a_minute_ahead_of_the_log(log: CliquesPartition) -> None:
    assert log.claim("n", "u", created_ms=log.now_ms + 1 + MAX_AHEAD_MS).code == "done"
    late = log.now_ms + 2 + MAX_AHEAD_MS
    latest = log.now_ms + 1 + MAX_AHEAD_MS
    reason = f"created_ms[0]: {late} must be from 0 to {latest}, one minute ahead of the log"
    assert log.claim("n", "v", created_ms=late).reason == reason


def test_a_clique_with_a_capacity_is_kept_through_a_restart() -> None:
    """Any of these keeps a clique: a capacity that was set, a waiting node, a held index, or a node that left."""
    log = CliquesPartition()
    log.resize(1)
    log.claim("n", "u")
    log.claim("m", "v")
    log.release("m")
    log.release("n")
    assert log.view().capacity == 1
    assert reloaded(log.state).cliques.keys() == {"d/c"}
    assert log.claim("n", "w").result["index"] == 0


def test_a_node_with_an_expired_session_is_not_ready_and_keeps_its_index(log: CliquesPartition) -> None:
    log.claim("n", "u")
    log.open_session("n", "s")
    log.ready("n")
    assert log.append(SessionExpired(Envelope("", "", "test", 0), "d", "c", "n", "s")).code == "done"
    member = log.view().members[0]
    assert (member.session_alive, member.ready, log.indices()) == (False, False, {"n": 0})


def test_a_node_returns_to_a_clique_that_is_about_to_forget_it(
    log: CliquesPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node leaves the other clique, so the fold forgets the oldest row of a node that left: its own row here."""
    monkeypatch.setattr("projections.cliques.claims.MAX_LEFT", 2)
    log.claim("n", "u1")
    log.release("n")
    log.claim("m", "v")
    log.claim("n", "u2", clique="other")
    log.claim("x", "w")
    log.release("x")
    assert log.claim("n", "u3").code == "done"
    assert log.indices() == {"n": 1, "m": 0}
    assert log.indices("other") == {}


@pytest.mark.parametrize("created_ms", [[], [0]])
def test_a_claim_without_a_creation_time_has_the_time_of_its_statement(
    log: CliquesPartition, created_ms: list[int]
) -> None:
    log.now_ms = START_MS + 100
    for uid, issued_ms, code in (("u", 50, "done"), ("v", 40, "refused"), ("w", 60, "done")):
        envelope = Envelope(f"id-{uid}", "d/c", "test", START_MS + issued_ms)
        assert log.append(IndicesClaimed(envelope, "d", "c", ["n"], [], created_ms, [uid], [])).code == code
    assert log.view().members[0].uid == "w"

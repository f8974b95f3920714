"""Rules of the clique fold beyond upstream's scenarios: capacity, incarnations, sessions, limits, and bad input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.cliques.fold import CliquesFold
from projections.cliques.state import MAX_CAPACITY, MAX_LEFT, MAX_LEFT_PER_CLIQUE, MAX_QUEUE, lowest_free
from tests.support.cliques import START_MS, CliquesPartition, check_invariants, reloaded, rows_of


@pytest.fixture
def log() -> CliquesPartition:
    return CliquesPartition()


def test_growth_serves_the_queue_in_order_and_prefers_last_indices(log: CliquesPartition) -> None:
    log.resize(4)
    log.fill(4)
    log.release("n3")
    log.release("n2")
    log.resize(2)
    for node in ("x", "n3", "y"):
        assert log.claim(node, f"new-{node}").code == "waiting"
    log.resize(4)
    assert log.indices() == {"n0": 0, "n1": 1, "x": 2, "n3": 3}
    assert log.waiting_nodes() == ["y"]


def test_a_capacity_below_an_index_in_use_is_refused(log: CliquesPartition) -> None:
    log.fill(5)
    outcome = log.resize(4)
    assert outcome.code == "refused"
    assert outcome.reason == "capacity: 4 is too small for index 4, held by node 'n4'"
    assert log.view().capacity == 18
    log.release("n4")
    assert log.resize(4).code == "done"


@pytest.mark.parametrize("capacity", [0, -1, MAX_CAPACITY + 1, 1 << 62])
def test_a_capacity_out_of_range_is_refused(log: CliquesPartition, capacity: int) -> None:
    assert log.resize(capacity).reason == f"capacity: {capacity} must be from 1 to {MAX_CAPACITY}"
    assert log.state.cliques == {}


def test_a_queue_place_ends_with_its_pod(log: CliquesPartition) -> None:
    log.resize(1)
    log.claim("holder", "u")
    assert [log.claim(node, "u1").result["queue_position"] for node in ("a", "b", "c")] == [1, 2, 3]
    log.release("b", "a-pod-of-before")
    assert log.waiting_nodes() == ["a", "b", "c"]
    assert log.claim("a", "u2").result["queue_position"] == 3
    log.release("b", "u1")
    assert log.waiting_nodes() == ["c", "a"]
    assert log.claim("c", "u1").result["queue_position"] == 1


def test_an_older_incarnation_changes_nothing(log: CliquesPartition) -> None:
    log.claim("a", "new", created_ms=START_MS + 5, address="10.0.0.5")
    before = rows_of(log.state)
    outcome = log.claim("a", "old", created_ms=START_MS + 4, address="10.0.0.4")
    assert outcome.code == "refused"
    assert outcome.reason == "uid: 'old' is older than 'new', the newest uid of node 'a'"
    assert log.release("a", "old").code == "unchanged"
    assert log.ready("a", uid="old").code == "refused"
    assert log.open_session("a", "s", uid="old").code == "refused"
    assert rows_of(log.state) == before
    log.release("a", "new")
    assert log.claim("a", "old", created_ms=START_MS + 4).code == "refused"


def test_pods_of_one_second_are_ordered_by_the_log(log: CliquesPartition) -> None:
    """Creation times of Kubernetes have whole seconds, and uids have no order."""
    log.claim("a", "z", created_ms=START_MS)
    log.claim("a", "b", created_ms=START_MS)
    assert log.view().members[0].uid == "b"
    assert log.claim("a", "z", created_ms=START_MS, internal=True, issued_ms=START_MS).code == "refused"
    assert log.view().members[0].uid == "b"


def test_a_claim_without_a_uid_is_its_own_incarnation(log: CliquesPartition) -> None:
    assert log.claim("a").result["index"] == 0
    first = log.view().members[0].uid
    assert first == "id-0"
    assert log.claim("a").result["index"] == 0
    assert log.view().members[0].uid == "id-1"


def test_an_incarnation_from_the_future_is_refused(log: CliquesPartition) -> None:
    outcome = log.claim("a", "u", created_ms=START_MS + 3_600_000)
    assert outcome.code == "refused"
    assert outcome.reason.startswith(f"created_ms[0]: {START_MS + 3_600_000} must be from 0 to")


def test_a_pod_created_by_a_fast_clock_can_be_replaced_after_the_correction(log: CliquesPartition) -> None:
    log.now_ms += 3_600_000
    log.claim("a", "fast", address="10.0.0.1")
    log.now_ms -= 3_600_000
    CliquesFold().rewind(log.state, log.now_ms)
    assert log.claim("b", "right", address="10.0.0.1").code == "done"
    assert log.claim("a", "later", address="10.0.0.2").code == "done"
    assert {member.node: (member.uid, member.address) for member in log.view().members} == {
        "a": ("later", "10.0.0.2"),
        "b": ("right", "10.0.0.1"),
    }


def test_a_move_frees_the_old_index_and_a_refused_move_changes_nothing(log: CliquesPartition) -> None:
    log.resize(1, "c")
    log.claim("a", "u1", address="10.0.0.1")
    log.claim("b", "v1", address="10.0.0.2")
    log.claim("other", "w", clique="c2")
    assert log.claim("a", "u2", clique="c2", requested_index=0).code == "refused"
    assert log.indices() == {"a": 0}
    assert log.claim("a", "u2", clique="c2", address="10.0.0.2").result["index"] == 1
    assert log.indices() == {"b": 0}
    assert log.view().members[0].address == ""
    assert log.view("c2").members[1].address == "10.0.0.2"


def test_an_address_is_kept_unless_another_is_given(log: CliquesPartition) -> None:
    log.claim("a", "u", address="2001:db8::1")
    log.ready("a")
    log.claim("a", "u", address="2001:DB8:0::1")
    assert (log.view().members[0].address, log.view().members[0].ready) == ("2001:db8::1", True)
    log.claim("a", "u")
    assert log.view().members[0].address == "2001:db8::1"
    log.claim("a", "u", address="10.0.0.1")
    assert (log.view().members[0].address, log.view().members[0].ready) == ("10.0.0.1", False)


def test_a_session_that_is_not_the_newest_is_ignored(log: CliquesPartition) -> None:
    log.claim("a", "u")
    log.open_session("a", "s1", issued_ms=START_MS + 10)
    log.now_ms = START_MS + 100
    log.open_session("a", "s2", issued_ms=START_MS + 20)
    log.ready("a")
    log.expire_session("a", "s1")
    assert log.view().members[0].session_alive and log.view().members[0].ready
    log.open_session("a", "s1", issued_ms=START_MS + 10)
    log.expire_session("a", "s2")
    log.open_session("a", "s2", issued_ms=START_MS + 20)
    assert not log.view().members[0].session_alive
    assert not log.view().members[0].ready


def test_a_late_copy_of_readiness_is_ignored(log: CliquesPartition) -> None:
    log.claim("a", "u")
    log.now_ms += 100
    log.ready("a", True, issued_ms=START_MS + 50)
    log.ready("a", False, issued_ms=START_MS + 60)
    assert log.ready("a", True, issued_ms=START_MS + 50).code == "refused"
    assert not log.view().members[0].ready


def test_a_fast_clock_does_not_silence_others(log: CliquesPartition) -> None:
    log.claim("a", "u")
    log.ready("a", True, issued_ms=START_MS + 3_600_000)
    assert log.ready("a", False).code == "done"
    assert not log.view().members[0].ready


def test_a_waiting_node_cannot_be_ready_but_may_have_a_session(log: CliquesPartition) -> None:
    log.resize(1)
    log.claim("a", "u")
    log.claim("b", "v")
    assert log.ready("b").reason == "node: 'b' waits for an index, so its daemon has no readiness"
    log.open_session("b", "s")
    log.release("a")
    assert log.view().members[0].session_alive


def test_statements_about_an_unknown_node_have_an_outcome(log: CliquesPartition) -> None:
    assert log.release("ghost").code == "unchanged"
    for outcome in (log.ready("ghost"), log.open_session("ghost", "s"), log.expire_session("ghost", "s")):
        assert outcome.reason == "node: 'ghost' has no index and no queue place in clique 'c'"
    assert rows_of(log.state) == rows_of(CliquesPartition().state)


@pytest.mark.parametrize(
    ("domain", "clique", "node", "address"),
    [
        ("a/b", "c", "n", ""),
        ("", "c", "n", ""),
        ("d", "c" * 129, "n", ""),
        ("d", "c", "", ""),
        ("d", "c", "a/b/c", ""),
        ("d", "c", "n", "127.0.0.2"),
        ("d", "c", "n", "nonsense"),
    ],
)
def test_malformed_claims_are_refused(domain: str, clique: str, node: str, address: str) -> None:
    log = CliquesPartition(domain, clique)
    outcome = log.claim(node, "u", address=address)
    assert outcome.code == "refused"
    assert " must be " in outcome.reason
    assert log.state.cliques == {}


def test_a_slash_cannot_reach_into_another_domain() -> None:
    log = CliquesPartition("d", "c")
    log.claim("source/n", "u")
    log.domain, log.clique = "d/c", "source"
    log.release("n")
    assert log.ready("n").code == "refused"
    log.domain, log.clique = "d", "c"
    assert log.indices() == {"source/n": 0}


def test_empty_cliques_are_forgotten_oldest_first() -> None:
    log = CliquesPartition(checked=False)
    for number in range(MAX_LEFT + 2):
        log.domain = f"domain-{number}"
        log.claim("n", "u")
        log.release("n")
    assert len(log.state.members.rows) == len(log.state.cliques) == len(log.state.domains) == MAX_LEFT
    assert "domain-1/c" not in log.state.cliques
    assert "domain-2/c" in log.state.cliques


def test_a_capacity_is_forgotten_with_the_last_node_of_its_clique(
    log: CliquesPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.cliques.claims.MAX_LEFT", 2)
    for clique in ("first", "second", "third"):
        log.resize(4, clique)
        log.claim(f"of-{clique}", "u", clique=clique)
        log.release(f"of-{clique}", clique=clique)
        assert reloaded(log.state).cliques.keys() == log.state.cliques.keys()
    assert log.state.capacities.rows.keys() == log.state.cliques.keys() == {"d/second", "d/third"}
    log.claim("n", "u", clique="first")
    assert log.view("first").capacity == 18


def test_a_clique_that_forgets_a_node_for_another_of_its_own_keeps_its_capacity(
    log: CliquesPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.cliques.claims.MAX_LEFT", 1)
    log.resize(4)
    for node in ("a", "b"):
        log.claim(node, "u")
        log.release(node)
    assert log.view().capacity == 4


def test_the_default_capacity_has_no_row(log: CliquesPartition) -> None:
    log.resize(4)
    log.claim("n", "u")
    assert log.resize(18).code == "done"
    assert (log.view().capacity, log.state.capacities.rows) == (18, {})
    log.resize(4, "unused")
    assert (log.resize(18, "unused").code, log.resize(18, "unknown").code) == ("done", "unchanged")
    assert log.state.cliques.keys() == reloaded(log.state).cliques.keys() == {"d/c"}


def test_the_number_of_cliques_with_a_capacity_and_no_node_is_limited(
    log: CliquesPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.cliques.fold.MAX_UNUSED", 2)
    assert [log.resize(4, clique).code for clique in ("a", "b", "c", "a")] == ["done", "done", "refused", "unchanged"]
    assert log.resize(5, "c").reason == "clique: 'c' would be over the limit of 2 cliques with a capacity and no node"
    log.state = reloaded(log.state)
    assert log.resize(5, "c").code == "refused"
    assert log.resize(5, "b").code == "done"
    log.claim("n", "u", clique="a")
    assert [log.resize(5, clique).code for clique in ("c", "d")] == ["done", "refused"]
    log.resize(18, "b")
    assert log.resize(5, "d").code == "done"


def test_nodes_that_left_are_forgotten_oldest_first() -> None:
    log = CliquesPartition(checked=False)
    log.resize(MAX_CAPACITY)
    for number in range(MAX_LEFT_PER_CLIQUE + 2):
        log.claim(f"n{number}", f"u{number}")
        log.release(f"n{number}")
    assert len(log.state.members.rows) == MAX_LEFT_PER_CLIQUE
    assert "d/c/n1" not in log.state.members.rows
    assert "d/c/n2" in log.state.members.rows
    assert rows_of(reloaded(log.state)) == rows_of(log.state)


def test_the_queue_is_bounded() -> None:
    log = CliquesPartition(checked=False)
    log.fill(18)
    for number in range(MAX_QUEUE):
        assert log.claim(f"w{number}", "u").code == "waiting"
    outcome = log.claim("one-more", "u")
    assert outcome.reason == f"clique: 'c' has {MAX_QUEUE} nodes in its queue, the limit"
    assert log.claim("w7", "u").result["queue_position"] == 8
    log.release("n0")
    assert log.claim("one-more", "u").code == "waiting"


def test_the_largest_clique_fills_and_restarts() -> None:
    log = CliquesPartition(checked=False)
    log.resize(MAX_CAPACITY)
    for number in range(MAX_CAPACITY):
        assert log.claim(f"n{number}", "u").result["index"] == number
    assert log.claim("late", "u").result["queue_position"] == 1
    log.release("n2048")
    check_invariants(log.state)
    log.state = reloaded(log.state)
    assert log.indices()["late"] == 2048


@given(st.sets(st.integers(0, 200)))
def test_lowest_free(used: set[int]) -> None:
    bitmap = sum(1 << index for index in used)
    assert lowest_free(bitmap) == next(index for index in range(300) if index not in used)


def test_a_statement_after_a_clock_correction_is_not_a_late_copy() -> None:
    """Otherwise no daemon could become ready and no pod could leave for as long as the clock had been ahead."""
    log = CliquesPartition()
    log.fill()
    log.now_ms += 3_600_000
    assert log.claim("late", "u").code == "waiting"
    assert log.claim("later", "u").code == "waiting"
    assert log.open_session("n0", "s1").code == "done"
    assert log.ready("n0").code == "done"
    log.now_ms -= 3_600_000
    CliquesFold().rewind(log.state, log.now_ms)
    assert log.waiting_nodes() == ["late", "later"]
    assert log.open_session("n0", "s2").reason == "" and log.ready("n0", False).code == "done"
    log.release("n0", internal=True)
    assert log.waiting_nodes() == ["later"]


def test_a_claim_without_an_address_keeps_the_former_address(log: CliquesPartition) -> None:
    log.claim("n", address="10.0.0.1")
    for clique in ("c", "c", "c2"):
        assert log.claim("n", clique=clique).code == "done"
        assert log.view(clique).members[0].address == "10.0.0.1"
    assert log.claim("n", "a-new-pod", clique="c2").code == "done"
    assert log.view("c2").members[0].address == "", "a new pod does not inherit the address"


def test_a_claim_without_an_address_does_not_take_back_a_lost_address(log: CliquesPartition) -> None:
    log.claim("old", address="10.0.0.1")
    log.claim("new", address="10.0.0.1")
    log.claim("old")
    assert {member.node: member.address for member in log.view().members} == {"old": "", "new": "10.0.0.1"}


def test_a_node_that_left_keeps_no_address(log: CliquesPartition) -> None:
    log.claim("n", address="10.0.0.1")
    log.release("n")
    log.claim("n")
    assert log.view().members[0].address == ""

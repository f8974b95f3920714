"""Scenarios of users of kubernetes-sigs/dra-driver-nvidia-gpu ("upstream"), one test per numbered scenario.

The sources are upstream's tests, issues and present code. A docstring names the behaviour of upstream where it differs.
Missing numbers need a Kubernetes API server: deletion of objects, two caches that disagree, status in two formats.
"""

from __future__ import annotations

import itertools
import random

import pytest

from projections.cliques.files import (
    FREE_SLOT_ADDRESS,
    Reload,
    dns_name,
    hosts_mapping,
    merge_hosts,
    peers_file,
    reload,
)
from projections.cliques.views import is_domain_ready, summaries
from tests.support.cliques import START_MS, CliquesPartition, reloaded, rows_of

TEXT = "no available indices within maxNodesPerIMEXDomain (18)"


@pytest.fixture
def log() -> CliquesPartition:
    return CliquesPartition()


@pytest.mark.parametrize("seed", range(5))
def test_01_eighteen_claim_at_once(log: CliquesPartition, seed: int) -> None:
    nodes = [f"n{number}" for number in range(18)]
    random.Random(seed).shuffle(nodes)
    assert sorted(log.claim(node, node).result["index"] for node in nodes) == list(range(18))
    assert sorted(log.indices().values()) == list(range(18))


def test_02_the_nineteenth_node_waits_and_the_others_keep_their_indices(log: CliquesPartition) -> None:
    """Upstream retries for ever, at intervals up to 6 s. Here the node has a place in a queue."""
    log.fill()
    before = log.indices()
    outcome = log.claim("n18", "u18")
    assert (outcome.code, outcome.reason, outcome.result) == ("waiting", TEXT, {"queue_position": 1})
    assert log.claim("n19", "u19").result == {"queue_position": 2}
    assert log.indices() == before


def test_03_the_nineteenth_node_gets_the_index_of_a_node_that_leaves(log: CliquesPartition) -> None:
    log.fill()
    log.claim("n18", "u18")
    log.claim("n19", "u19")
    assert log.release("n7", "u7").code == "done"
    assert log.indices()["n18"] == 7
    assert log.waiting_nodes() == ["n19"]
    assert log.claim("n18", "u18").result["index"] == 7
    assert log.claim("n19", "u19").result["queue_position"] == 1


def test_04_a_gap_is_filled_before_the_clique_grows(log: CliquesPartition) -> None:
    log.fill(10)
    log.release("n5")
    assert log.claim("new", "u").result["index"] == 5
    assert log.claim("newer", "v").result["index"] == 10


def test_05_three_gaps_are_filled_by_three_new_nodes(log: CliquesPartition) -> None:
    log.fill(12)
    for number in (11, 3, 7):
        log.release(f"n{number}")
    assert [log.claim(node, node).result["index"] for node in ("a", "b", "c")] == [3, 7, 11]


def test_06_a_claim_repeated_changes_nothing(log: CliquesPartition) -> None:
    log.claim("a", "u", address="10.0.0.1")
    log.state.members.drain()
    for _ in range(100):
        assert log.claim("a", "u", address="10.0.0.1", created_ms=START_MS).result["index"] == 0
    assert not any(log.state.members.drain())


def test_07_a_new_pod_keeps_the_index_and_is_not_ready(log: CliquesPartition) -> None:
    """Upstream leaves the old status, so that a stale Ready survives."""
    log.fill(3)
    log.ready("n1")
    signal, _ = reload(Reload(), log.slot_addresses(), 0)
    assert log.claim("n1", "u1-new", address="10.0.9.9").result["index"] == 1
    member = log.view().members[1]
    assert (member.address, member.ready, member.uid) == ("10.0.9.9", False, "u1-new")
    assert log.slot_addresses()[:3] == ("10.0.0.1", "10.0.9.9", "10.0.0.3")
    _, is_due = reload(signal, log.slot_addresses(), 60_000)
    assert is_due


def test_08_a_node_that_returns_gets_its_former_index_if_free(log: CliquesPartition) -> None:
    """Upstream assigns the lowest free index. Here indices are sticky, so that a returning job finds its former ids."""
    log.fill(6)
    for number in (1, 4):
        log.release(f"n{number}")
    assert log.claim("n4", "u4-new").result["index"] == 4
    assert log.claim("stranger", "s").result["index"] == 1
    assert log.claim("n1", "u1-new").result["index"] == 6


def test_09_another_machine_under_the_same_name_is_not_ready(log: CliquesPartition) -> None:
    log.fill(2)
    log.ready("n0")
    assert log.claim("n0", "other-machine", address="10.9.0.1").result["index"] == 0
    assert not log.view().members[0].ready


def test_10_a_graceful_stop_moves_no_other_node(log: CliquesPartition) -> None:
    log.fill(18)
    log.state.members.drain()
    log.release("n3", "u3")
    assert log.state.members.drain().changed == ["d/c/n3"]
    assert log.indices() == {f"n{number}": number for number in range(18) if number != 3}


def test_11_all_nodes_stop_together(log: CliquesPartition) -> None:
    """Upstream removes some nodes at once. The removals of others fail by conflicts and wait for the next clean-up."""
    log.fill(18)
    for number in range(18):
        assert log.release(f"n{number}", f"u{number}").code == "done"
    assert log.view().members == ()
    assert set(log.slot_addresses()) == {FREE_SLOT_ADDRESS}


def test_12_a_restart_storm_changes_addresses_only(log: CliquesPartition) -> None:
    log.fill(18)
    before = log.indices()
    order = list(range(18))
    random.Random(12).shuffle(order)
    for number in order:
        log.claim(f"n{number}", f"v{number}", address=f"10.1.0.{number + 1}")
    assert log.indices() == before
    assert log.slot_addresses() == tuple(f"10.1.0.{number + 1}" for number in range(18))


def test_13_a_crash_loop_of_one_pod_writes_nothing(log: CliquesPartition) -> None:
    log.claim("a", "u", address="10.0.0.1", created_ms=START_MS)
    before = rows_of(log.state)
    for _ in range(10):
        log.claim("a", "u", address="10.0.0.1", created_ms=START_MS)
    assert rows_of(log.state) == before


def test_14_a_lost_node_is_not_ready_and_keeps_its_index(log: CliquesPartition) -> None:
    """Upstream keeps the node Ready until its Node object is deleted: only the dead daemon could report otherwise."""
    log.fill(2)
    log.open_session("n0", "s1")
    log.ready("n0")
    log.expire_session("n0", "s1")
    member = log.view().members[0]
    assert (member.index, member.ready, member.session_alive) == (0, False, False)
    assert log.ready("n0").code == "refused"
    log.open_session("n0", "s2")
    log.ready("n0")
    assert log.view().members[0].ready


def test_15_a_deleted_node_frees_its_index_for_the_first_waiting_node(log: CliquesPartition) -> None:
    log.fill(18)
    log.claim("n18", "u18")
    log.expire_session("n4", "none")
    log.release("n4", "u4")
    assert log.indices()["n18"] == 4


def test_16_two_domains_with_one_clique_id_are_independent(log: CliquesPartition) -> None:
    assert log.claim("a", "u", domain="d1", address="10.0.0.1").result["index"] == 0
    assert log.claim("b", "v", domain="d2", address="10.0.0.1").result["index"] == 0
    assert (log.indices(domain="d1"), log.indices(domain="d2")) == ({"a": 0}, {"b": 0})
    assert log.view(domain="d1").members[0].address == log.view(domain="d2").members[0].address == "10.0.0.1"


def test_17_a_node_that_moves_to_another_clique_leaves_the_first(log: CliquesPartition) -> None:
    log.fill(18)
    log.claim("n18", "u18")
    assert log.claim("n5", "u5-new", clique="c2", address="10.0.0.6").result["index"] == 0
    assert "n5" not in log.indices()
    assert log.indices()["n18"] == 5
    assert log.claim("n5", "u5-new", clique="c").code == "refused"


def test_18_one_domain_has_three_cliques(log: CliquesPartition) -> None:
    for number in range(54):
        log.claim(f"n{number}", f"u{number}", clique=f"c{number % 3}")
    for clique in ("c0", "c1", "c2"):
        assert sorted(log.indices(clique).values()) == list(range(18))
    assert [(found.clique, found.members) for found in summaries(log.state, "d")] == [
        ("c0", 18),
        ("c1", 18),
        ("c2", 18),
    ]


def test_19_a_claim_without_a_clique_is_refused(log: CliquesPartition) -> None:
    """A node without a fabric is in no clique. Upstream shows index -1 for it; here the claim is refused."""
    log.clique = ""
    outcome = log.claim("a", "u")
    assert (outcome.code, outcome.result) == ("refused", {})
    assert outcome.reason.startswith("clique: '' must be 1 to 128 ")
    assert log.state.cliques == {}


def test_20_a_release_issued_before_the_claim_changes_nothing(log: CliquesPartition) -> None:
    """Upstream's clean-up, with a view older than the claim, removes rows and so exchanges indices."""
    seen_ms = log.now_ms
    log.claim("a", "u", internal=True)
    log.claim("b", "v", internal=True)
    log.release("a", "", issued_ms=seen_ms, internal=True)
    log.release("b", "an-older-pod", internal=True)
    assert log.indices() == {"a": 0, "b": 1}


def test_22_a_reused_address_goes_to_the_newer_pod(log: CliquesPartition) -> None:
    """Upstream's hosts map keeps one of the two nodes at random, and a stop removes both."""
    log.claim("dead", "u", address="10.0.0.1", created_ms=START_MS)
    log.ready("dead")
    log.claim("new", "v", address="10.0.0.1", created_ms=START_MS + 1)
    assert log.slot_addresses()[:2] == (FREE_SLOT_ADDRESS, "10.0.0.1")
    assert not log.view().members[0].ready
    log.claim("dead", "u", address="10.0.0.1", created_ms=START_MS)
    assert log.slot_addresses()[:2] == (FREE_SLOT_ADDRESS, "10.0.0.1")
    log.release("new", "v")
    assert log.indices() == {"dead": 0}


def test_23_names_of_two_domains_differ() -> None:
    names = [peers_file(uid, 18) for uid in ("9f410827-489f-46fd-8203-51266ca08eb7", "0a3d")]
    assert not set(names[0].split()) & set(names[1].split())


def test_24_the_index_of_a_running_daemon_never_changes(log: CliquesPartition) -> None:
    log.fill(3)
    outcome = log.claim("n2", "u2", requested_index=5)
    assert outcome.code == "refused"
    assert "requested_index: 5 cannot replace 2" in outcome.reason
    log.release("n0")
    assert log.claim("n2", "u2").result["index"] == 2


def test_26_two_writers_from_one_snapshot_both_get_a_row(log: CliquesPartition) -> None:
    assert {log.claim("a", "u").result["index"], log.claim("b", "v").result["index"]} == {0, 1}
    assert len(log.view().members) == 2


def test_27_a_requested_index_does_not_take_the_index_of_another_node(log: CliquesPartition) -> None:
    """Upstream accepts the row, and one name has two addresses. Here the older claim keeps the index."""
    log.fill(3)
    outcome = log.claim("intruder", "x", requested_index=1)
    assert outcome.code == "refused"
    assert outcome.reason == "requested_index: 1 is held by node 'n1', and a claim cannot take it over"
    assert log.claim("guest", "y", requested_index=9).result["index"] == 9
    assert log.claim("next", "z").result["index"] == 3


@pytest.mark.parametrize("requested_index", [-2, 18, 1 << 40])
def test_28_an_index_outside_the_clique_is_refused(log: CliquesPartition, requested_index: int) -> None:
    """Upstream's daemon exits on a row with such an index."""
    outcome = log.claim("a", "u", requested_index=requested_index)
    assert outcome.code == "refused"
    assert outcome.reason.partition(": ")[2].startswith(f"{requested_index} must be from ")


def test_29_a_domain_is_ready_when_enough_nodes_are_ready_and_none_is_unready(log: CliquesPartition) -> None:
    assert is_domain_ready(log.state, "d", 0)
    assert not is_domain_ready(log.state, "d", 2)
    log.fill(3)
    for number in range(3):
        assert not is_domain_ready(log.state, "d", 2)
        log.ready(f"n{number}")
    assert is_domain_ready(log.state, "d", 2)
    log.ready("n1", False)
    assert not is_domain_ready(log.state, "d", 2)


def test_30_a_stopped_daemon_is_not_ready_until_it_reports_again(log: CliquesPartition) -> None:
    log.fill(1)
    for is_ready in (True, False, True):
        log.ready("n0", is_ready)
        assert (log.view().members[0].ready, log.indices()) == (is_ready, {"n0": 0})


def test_31_signals_are_coalesced_and_the_last_addresses_are_signalled(log: CliquesPartition) -> None:
    state, is_due = Reload(), False
    sent = []
    for now_ms in range(0, 60_000, 100):
        if now_ms < 10_000 and now_ms % 1_000 == 0:
            log.claim(f"n{now_ms}", f"u{now_ms}", address=f"10.0.0.{now_ms // 1_000 + 1}")
        state, is_due = reload(state, log.slot_addresses(), now_ms)
        sent += [now_ms] * is_due
    assert sent == [0, 5_300, 10_600]
    assert state.resolved == log.slot_addresses()
    log.release("n3000")
    state, is_due = reload(state, log.slot_addresses(), 70_000)
    assert not is_due and state.wake_ms is None


def test_32_the_hosts_file_has_every_slot_and_does_not_grow(log: CliquesPartition) -> None:
    """Upstream appends its header at each update, and leaves names of free slots to the DNS of the network."""
    log.fill(2)
    foreign = "127.0.0.1\tlocalhost\n10.9.9.9\tgateway # by hand\n"
    text = foreign
    for _ in range(1_000):
        text = merge_hosts(text, hosts_mapping("d", log.slot_addresses()))
    lines = text.splitlines()
    assert text.startswith(foreign)
    assert len(lines) == 2 + 1 + 18
    assert lines[3:6] == [
        f"10.0.0.1\t{dns_name('d', 0)}",
        f"10.0.0.2\t{dns_name('d', 1)}",
        f"{FREE_SLOT_ADDRESS}\t{dns_name('d', 2)}",
    ]
    assert [line.split("\t")[1] for line in lines[3:]] == peers_file("d", 18).splitlines()


def test_33_a_restart_in_mid_formation_changes_no_index(log: CliquesPartition) -> None:
    log.fill(9)
    log.release("n4")
    before = log.indices()
    log.state = reloaded(log.state)
    assert log.indices() == before
    assert log.claim("n4", "again").result["index"] == 4
    assert [log.claim(f"m{number}", f"w{number}").result["index"] for number in range(9)] == list(range(9, 18))


def test_34_indices_of_foreign_rows_can_be_requested(log: CliquesPartition) -> None:
    """Upstream loses the indices when it changes the object that stores them (upstream issue 1486)."""
    rows = {"a": 4, "b": 0, "c": 17}
    for node, index in rows.items():
        assert log.claim(node, f"pod-{node}", requested_index=index).result["index"] == index
    assert log.indices() == rows
    assert log.claim("d", "pod-d").result["index"] == 1


def test_35_a_late_copy_of_a_claim_is_refused(log: CliquesPartition) -> None:
    issued_ms = log.now_ms
    log.claim("a", "u", issued_ms=issued_ms, internal=True)
    log.release("a", "u", internal=True)
    assert log.claim("a", "u", issued_ms=issued_ms, internal=True).code == "refused"
    assert log.view().members == ()
    assert log.claim("a", "u", internal=True).result["index"] == 0


def test_36_the_log_replayed_gives_the_same_rows(log: CliquesPartition) -> None:
    log.fill(18)
    for node, uid in itertools.product(("x", "y"), ("1", "2")):
        log.claim(node, uid)
    log.release("n9")
    log.resize(20)
    again = CliquesPartition()
    for event, _ in log.events:
        again.append(event)
    assert rows_of(again.state) == rows_of(log.state)

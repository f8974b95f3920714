"""Records of several claims or releases: each has the effect and the outcomes of a record per node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventstore.folding.fold import Decision, ItemOutcome, Outcome, RecordMetadata, normalize
from projections.cliques.fold import CliquesFold
from projections.cliques.state import CliquesState
from projections.decisions.decided import render
from projections.decisions.histories import about
from projections.decisions.items import flattened
from schemas.events import (
    MAX_COMMAND_BYTES,
    MAX_ITEMS,
    CliqueCapacitySet,
    Envelope,
    Event,
    IndicesClaimed,
    IndicesReleased,
)
from tests.support.cliques import PARTITION, START_MS, CliquesPartition, check_invariants, reloaded, rows_of

FULL = "no available indices within maxNodesPerIMEXDomain (2)"
ITEMS_MAX = 4


class Step(NamedTuple):
    """A record of several nodes, and the equal records of one node each."""

    whole: Event
    parts: list[Event]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    domain, clique = draw(st.sampled_from("de")), draw(st.sampled_from(["c1", "c1", "c2"]))
    internal = draw(st.booleans())
    said = Envelope("" if internal else "id", f"{domain}/{clique}", "test", START_MS + draw(st.integers(0, 3)))
    kind = draw(st.sampled_from(["claim", "claim", "claim", "release", "resize"]))
    if kind == "resize":
        resized = CliqueCapacitySet(said, domain, clique, draw(st.integers(1, 3)))
        return Step(resized, [resized])
    nodes = draw(st.lists(st.sampled_from([f"n{n}" for n in range(6)]), min_size=1, max_size=ITEMS_MAX, unique=True))
    count = len(nodes)
    uids = draw(st.lists(st.sampled_from(["", "u", "v", "w"]), min_size=count, max_size=count))
    if kind == "release":
        releases = [IndicesReleased(said, domain, clique, [node], [uid]) for node, uid in zip(nodes, uids, strict=True)]
        return Step(IndicesReleased(said, domain, clique, nodes, uids), [*releases])
    hosts = draw(st.lists(st.integers(1, 8), min_size=count, max_size=count, unique=True))
    addresses = [f"10.0.0.{host}" if host < 6 else "" for host in hosts]
    created = draw(st.lists(st.sampled_from([0, 1, 2, START_MS]), min_size=count, max_size=count))
    requested = draw(st.lists(st.sampled_from([-1, -1, -1, 0, 2]), min_size=count, max_size=count))
    claims = [
        IndicesClaimed(said, domain, clique, [node], [address], [created_ms], [uid], [index])
        for node, address, created_ms, uid, index in zip(nodes, addresses, created, uids, requested, strict=True)
    ]
    return Step(IndicesClaimed(said, domain, clique, nodes, addresses, created, uids, requested), [*claims])


def metadata(offset: int) -> RecordMetadata:
    return RecordMetadata(PARTITION, offset, START_MS + 10, START_MS + 10)


def decided(state: CliquesState, event: Event, offset: int) -> Decision:
    """The decision about a record, applied to the state. `decide` itself must not change it."""
    fold, before = CliquesFold(), rows_of(state)
    order = [list(state.left), {key: list(clique.queue) for key, clique in state.cliques.items()}]
    decision = fold.decide(state, event, metadata(offset))
    assert rows_of(state) == before
    assert [list(state.left), {key: list(clique.queue) for key, clique in state.cliques.items()}] == order
    if decision.change is not None:
        fold.evolve(state, decision.change, metadata(offset))
    check_invariants(state)
    return decision


def contents(state: CliquesState) -> tuple[object, ...]:
    """The whole content of a state. Each item of a record is counted as a record."""
    rows = {key: replace(row, since=(row.since.offset + row.since.item, 0)) for key, row in state.members.rows.items()}
    cliques = {
        key: (found.capacity, found.holders, found.used, found.ready, [*found.queue], [*found.left])
        for key, found in state.cliques.items()
    }
    domains = {key: {*found} for key, found in state.domains.items()}
    return rows, dict(state.capacities.rows), cliques, domains, {**state.homes}, {**state.addresses}, [*state.left]


def outcomes(nodes: Sequence[str], whole: Outcome) -> list[Outcome]:
    """The outcome of each node of a record."""
    if len(nodes) == 1:
        return [whole]
    items = {
        item.name: Outcome(item.code, item.reason, item.result, (), item.reason_code, item.reason_fields)
        for item in whole.items
    }
    return [items.get(node, Outcome(whole.code, whole.reason)) for node in nodes]


@pytest.mark.parametrize("limit", ["none", "left", "queue"])
@settings(max_examples=120, deadline=None)
@given(history=st.lists(steps(), max_size=12))
def test_a_record_of_several_nodes_equals_one_record_per_node(limit: str, history: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if limit == "left":
            patch.setattr("projections.cliques.claims.MAX_LEFT", 3)
            patch.setattr("projections.cliques.claims.MAX_LEFT_PER_CLIQUE", 2)
        if limit == "queue":
            patch.setattr("projections.cliques.claims.MAX_QUEUE", 1)
        together, singly = CliquesState(), CliquesState()
        for number, (whole, parts) in enumerate(history):
            first = number * ITEMS_MAX
            outcome = decided(together, whole, first).outcome
            each = [decided(singly, part, first + item).outcome for item, part in enumerate(parts)]
            assert outcomes(getattr(whole, "nodes", [""]), outcome) == each
            assert contents(together) == contents(singly)
            assert contents(reloaded(together)) == contents(together)


@pytest.fixture
def log() -> CliquesPartition:
    log = CliquesPartition()
    log.resize(2)
    return log


def test_each_node_gets_its_index_its_place_in_line_or_the_reason_of_its_refusal(log: CliquesPartition) -> None:
    claims = ("a", "u", "", 1, -1), ("b", "u", "", 1, 0), ("c", "u", "", 1, -1), ("e", "u", "", 1, -1)
    held = "requested_index: 0 is held by node 'a', and a claim cannot take it over"
    in_use = {"field": "requested_index", "index": "0", "node": "a"}
    assert log.claim_all(*claims) == Outcome(
        "done",
        items=(
            ItemOutcome("a", "done", result={"index": 0}),
            ItemOutcome("b", "refused", held, "INDEX_IN_USE", in_use),
            ItemOutcome("c", "done", result={"index": 1}),
            ItemOutcome("e", "waiting", FULL, result={"queue_position": 1}),
        ),
    )
    waiting = log.claim_all(("f", "u", "", 1, -1), ("g", "u", "", 1, -1))
    assert (waiting.code, waiting.reason, [item.result for item in waiting.items]) == (
        "waiting",
        FULL,
        [{"queue_position": 2}, {"queue_position": 3}],
    )
    refused = log.claim_all(("b", "u", "", 1, 0), ("h", "u", "", 1, 0))
    assert (refused.code, refused.reason) == ("refused", held)
    assert [(item.name, item.reason) for item in refused.items] == [("b", held), ("h", held)]
    assert (refused.reason_code, refused.reason_fields) == ("INDEX_IN_USE", in_use)


def test_a_repeated_claim_of_several_nodes_has_the_same_outcomes_and_changes_nothing(log: CliquesPartition) -> None:
    first = log.claim_all(("a", "u", "", 1, -1), ("c", "u", "", 1, -1))
    again = normalize(log.fold.decide(log.state, log.events[-1][0], log.events[-1][1]))
    assert again == Decision(None, first)


def test_a_release_of_several_nodes_names_those_without_a_claim(log: CliquesPartition) -> None:
    log.claim_all(("a", "u", "", 1, -1), ("c", "u", "", 1, -1), ("e", "u", "", 1, -1))
    absent = "node: 'nobody' has no index and no queue place in clique 'c'"
    assert log.release_all(("a", ""), ("nobody", "")) == Outcome(
        "done", items=(ItemOutcome("nobody", "unchanged", absent),)
    )
    assert log.indices() == {"c": 1, "e": 0}
    nothing = log.release_all(("a", ""), ("nobody", ""))
    assert (nothing.code, [item.name for item in nothing.items]) == ("unchanged", ["a", "nobody"])
    assert log.release_all(("c", "u"), ("e", "u")) == Outcome("done")


def test_waiting_nodes_of_one_record_keep_their_order_through_a_restart(log: CliquesPartition) -> None:
    log.claim_all(*((node, "u", "", 1, -1) for node in ("a", "b", "z", "y", "x")))
    assert log.waiting_nodes() == ["z", "y", "x"]
    assert [*reloaded(log.state).cliques["d/c"].queue] == ["z", "y", "x"]


ENVELOPE = Envelope("id", "d/c", "test", START_MS)
NODES = ["a", "b"]
MALFORMED: list[tuple[Event, str]] = [
    (IndicesClaimed(ENVELOPE, "d", "c", [], [], [], [], []), "nodes: 0 items must be from 1 to 1000"),
    (IndicesReleased(ENVELOPE, "d", "c", [], []), "nodes: 0 items must be from 1 to 1000"),
    (
        IndicesReleased(ENVELOPE, "d", "c", [f"n{number}" for number in range(MAX_ITEMS + 1)], []),
        "nodes: 1001 items must be from 1 to 1000",
    ),
    (IndicesReleased(ENVELOPE, "d", "c", ["a", "b b"], []), "nodes[1]: 'b b' must be 1 to 253"),
    (IndicesClaimed(ENVELOPE, "d", "c", ["a", "a"], [], [], [], []), "nodes[1]: 'a' is given twice"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, ["10.0.0"], [], [], []), "addresses[0]: '10.0.0' must be an IPv4"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, ["10.0.0.1"], [], [], []), "addresses[1]: '10.0.0.1' is given twice"),
    (
        IndicesClaimed(ENVELOPE, "d", "c", NODES, ["2001:db8::1", "2001:DB8:0::1"], [], [], []),
        "addresses[1]: '2001:db8::1' is given twice",
    ),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [""] * 3, [], [], []), "addresses: 3 entries for 2 nodes must be 0"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [], [1] * 3, [], []), "created_ms: 3 entries for 2 nodes must be 0"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [], [], ["u"] * 3, []), "uids: 3 entries for 2 nodes must be 0"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [], [], [], [0] * 3), "requested_indices: 3 entries for 2 nodes"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [], [1, -1], [], []), "created_ms[1]: -1 must be from 0 to"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [], [], ["u", "u\n"], []), "uids[1]: 'u\\n' must be at most 128"),
    (IndicesClaimed(ENVELOPE, "d", "c", NODES, [], [], [], [4_096]), "requested_indices[0]: 4096 must be from -1"),
    (IndicesReleased(ENVELOPE, "d", "c", NODES, ["u", "\n"]), "uids[1]: '\\n' must be at most 128"),
]


@pytest.mark.parametrize(("event", "said"), MALFORMED)
def test_one_malformed_item_refuses_the_whole_record(event: Event, said: str) -> None:
    state = CliquesState()
    decision = decided(state, event, 0)
    assert (decision.change, decision.outcome.code, decision.outcome.items) == (None, "refused", ())
    assert decision.outcome.reason.startswith(said)


def test_a_record_that_is_too_large_is_refused() -> None:
    nodes = [f"{number:04d}-{'n' * 180}" for number in range(MAX_ITEMS)]
    fits = IndicesReleased(ENVELOPE, "d", "c", nodes, ["u" * 70])
    assert decided(CliquesState(), fits, 0).outcome.code == "unchanged"
    large = IndicesReleased(ENVELOPE, "d", "c", nodes, ["u" * 128 for _ in nodes])
    size = sum(map(len, nodes)) + 128 * MAX_ITEMS
    assert decided(CliquesState(), large, 0).outcome.reason == (
        f"nodes: {size} bytes of nodes, uids and addresses are more than the {MAX_COMMAND_BYTES} allowed"
    )


def test_a_column_of_one_entry_applies_to_every_node(log: CliquesPartition) -> None:
    log.append(IndicesClaimed(ENVELOPE, "d", "c", NODES, [""], [7], ["pod"], [-1]))
    assert [(member.node, member.uid, member.create_time_ms) for member in log.view().members] == [
        ("a", "pod", 7),
        ("b", "pod", 7),
    ]


def rendered(log: CliquesPartition, number: int = -1, subject: str = "") -> list[tuple[str, str]]:
    """Kind and subject of the items of a record of this log, folded again; about one subject, if given."""
    state = CliquesState()
    for event, at in log.events:
        change, outcome = log.fold.decide(state, event, at)
        if change is not None:
            log.fold.evolve(state, change, at)
        if event is log.events[number][0]:
            found = about(subject, event, change, outcome, at) if subject else None
            items = flattened(render(event, change, outcome, at)) if found is None else found
            return [(item.kind, item.subject) for item in items]
    raise AssertionError("no such record")


def test_every_node_of_a_record_is_rendered_and_has_its_own_history(log: CliquesPartition) -> None:
    log.claim("k", "u", address="10.0.0.9")
    log.claim("x", "u", clique="c2")
    claims = ("a", "u", "10.0.0.9", log.now_ms + 9, -1), ("x", "v", "", log.now_ms + 9, -1), ("b", "u", "", 1, 0)
    log.claim_all(*claims, ("k", "u", "", 1, -1))
    assert rendered(log) == [
        ("address_lost", "k"),
        ("index_assigned", "a"),
        ("index_released", "x"),
        ("index_waiting", "x"),
        ("index_kept", "k"),
        ("refused", "b"),
    ]
    assert rendered(log, subject="k") == [("address_lost", "k"), ("index_kept", "k")]
    assert rendered(log, subject="b") == [("refused", "b")]
    assert rendered(log, subject="d/c2") == [("index_released", "x")]
    assert rendered(log, subject="stranger") == []
    log.release_all(("a", ""), ("nobody", ""))
    assert rendered(log) == [("index_released", "a"), ("index_assigned", "x"), ("unchanged", "nobody")]
    log.claim_all(("b", "u", "", 1, 0), ("e", "u", "", 1, 0))
    assert rendered(log) == [("refused", "b"), ("refused", "e")]
    log.claim_all(("a", "u", "10.0.0.1", 1, -1), ("e", "u", "", 1, -1))
    log.claim_all(("x", "v", "", 1, -1), ("e", "u", "", 1, -1))
    assert rendered(log) == [("index_kept", "x"), ("index_waiting", "e")]
    log.claim("x", "v")
    assert rendered(log) == [("index_kept", "x")]

"""Statements of node agents in the zone fold, by example and by property. Each label and address has an owner."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from eventstore.folding.fold import Outcome
from projections.forwarding.zones_to_fleet import forward
from projections.zones.rows import Node
from schemas.events import AGENT_ADDRESS4, AGENT_ADDRESS6, AGENT_JOINED, PRESENT, SUPERSEDED, NodesChanged, NodesJoined
from tests.support.zones import ZONE, ZonesPartition, nodes_joined, packed6, reloaded, replayed, rows_of

NET = int(IPv4Address("10.7.0.0"))
OTHER = int(IPv4Address("10.9.0.1"))
AGENT = "node-agent/a"


def limited(
    *, networks: tuple[str, ...] = ("10.7.0.0/16", "fd00:7::/64"), keys: tuple[str, ...] = ("role",)
) -> ZonesPartition:
    log = ZonesPartition()
    log.limit(-1, -1, networks=networks, keys=keys)
    return log


def as_agent(
    log: ZonesPartition, *, address: int = 0, six: str = "::", labels: dict[str, str] | None = None, zone: str = ZONE
) -> Outcome:
    """Append a join by the agent of node `a`."""
    log.actor = AGENT
    event = nodes_joined(log.envelope(), ["a"], zone=zone, address=address, labels=labels)
    outcome = log.append(replace(event, addresses6=packed6(six)))
    log.actor = "operator/ann"
    return outcome


def row(log: ZonesPartition, name: str = "a") -> Node:
    found = log.state.nodes.rows[name]
    assert isinstance(found, Node)
    return found


def test_a_node_agent_cannot_create_a_zone_and_the_refusal_names_the_command() -> None:
    log = ZonesPartition()
    outcome = as_agent(log, address=NET + 1)
    assert (outcome.code, "dpuplane zones limit z1 --create" in outcome.reason) == ("refused", True)
    assert not log.state.zone_rows.rows
    assert not log.state.nodes.rows


def test_an_agent_may_state_no_label_or_address_before_an_operator_permits_it() -> None:
    log = ZonesPartition()
    log.limit(4, -1)
    assert as_agent(log).code == "done"
    for stated, command in (
        ({"labels": {"trust": "high"}}, "--agent-label-key trust"),
        ({"address": NET + 1}, "--agent-network 10.7.0.1/32"),
        ({"six": "fd00:7::1"}, "--agent-network fd00:7::1/128"),
    ):
        outcome = as_agent(log, **stated)
        assert (outcome.code, command in outcome.reason) == ("refused", True), outcome
    assert (row(log).labels, row(log).address4, row(log).address6) == ({}, 0, b"")


@pytest.mark.parametrize("address", [NET + 1, NET + 0xFFFF])
def test_an_address_in_the_networks_of_the_zone_is_owned_by_the_agent(address: int) -> None:
    log = limited()
    assert as_agent(log, address=address, six="fd00:7::1").code == "done"
    assert row(log).agent == AGENT_JOINED | AGENT_ADDRESS4 | AGENT_ADDRESS6
    event = forward(log.state, 0, 0)
    assert event is not None
    assert event.states == [SUPERSEDED + row(log).agent]


@pytest.mark.parametrize("address", [NET - 1, NET + 0x10000, OTHER])
def test_an_address_outside_the_networks_of_the_zone_is_refused(address: int) -> None:
    assert as_agent(limited(), address=address).code == "refused"


def test_a_statement_of_an_agent_keeps_the_labels_of_an_operator() -> None:
    log = limited()
    log.join("a", address=OTHER, labels={"trust": "low", "role": "web"})
    assert as_agent(log, labels={"role": "db"}).code == "done"
    assert (row(log).labels, row(log).address4) == ({"role": "db", "trust": "low"}, OTHER)
    assert as_agent(log).code == "done"
    assert row(log).labels == {"trust": "low"}
    log.actor = AGENT
    change = NodesChanged(log.envelope(), ZONE, ["a"], [], [], b"", b"", [{"role": "x"}], [0])
    assert log.append(change).code == "done"
    assert row(log).labels == {"role": "x", "trust": "low"}


def test_an_agent_may_repeat_values_of_an_operator_without_owning_them() -> None:
    log = limited(networks=(), keys=())
    log.join("a", address=OTHER, labels={"trust": "low"})
    assert as_agent(log, address=OTHER, labels={"trust": "low"}).code == "done"
    assert row(log).agent == 0
    event = forward(log.state, 0, 0)
    assert event is not None
    assert event.states == [PRESENT]


def test_an_agent_cannot_replace_an_address_of_an_operator() -> None:
    log = limited()
    log.join("a", address=OTHER)
    outcome = as_agent(log, address=NET + 1)
    assert (outcome.code, "'10.9.0.1'" in outcome.reason) == ("refused", True)
    assert row(log).address4 == OTHER


def test_an_operator_owns_all_values_that_it_states() -> None:
    log = limited()
    as_agent(log, address=NET + 1, labels={"role": "web"})
    log.join("a", address=NET + 1, labels={"role": "web"}, created_ms=row(log).created_ms, uid=row(log).uid)
    assert row(log).agent == 0
    assert as_agent(log, address=NET + 2).code == "refused"
    log.join("a")
    assert (row(log).labels, row(log).address4) == ({}, 0)


def test_a_node_agent_can_neither_move_a_node_nor_remove_one_with_labels_of_an_operator() -> None:
    log = limited()
    log.limit(-1, -1, zone="z2", networks=["10.7.0.0/16"])
    log.join("a", labels={"trust": "low"})
    assert "cannot move a node" in as_agent(log, zone="z2").reason
    log.actor = AGENT
    outcome = log.leave("a")
    assert (outcome.code, "trust" in outcome.reason) == ("refused", True)
    log.actor = "operator/ann"
    log.join("a", labels={"role": "web"})
    log.actor = AGENT
    assert log.leave("a").code == "done"
    assert as_agent(log, zone="z2").code == "done"


def test_an_unauthenticated_actor_is_not_an_agent() -> None:
    log = ZonesPartition()
    log.actor = "?node-agent/a"
    assert log.join("a", address=OTHER, labels={"trust": "high"}).code == "done"


statements = st.lists(
    st.tuples(
        st.sampled_from(("operator/ann", AGENT, AGENT)),
        st.booleans(),
        st.sampled_from((0, NET + 1, NET + 2, OTHER)),
        st.dictionaries(st.sampled_from(("role", "trust")), st.sampled_from("12")),
    ),
    max_size=12,
)


@given(found=statements)
def test_no_statement_of_an_agent_alters_values_of_an_operator(
    found: list[tuple[str, bool, int, dict[str, str]]],
) -> None:
    log = limited()
    log.join("b")  # keeps the zone in existence without node `a`
    for actor, joins, address, labels in found:
        log.actor = actor
        before = log.state.nodes.rows.get("a")
        event = nodes_joined(log.envelope(), ["a"], address=address, labels=labels)
        told = log.append(event if joins else _changed(event))
        after = log.state.nodes.rows.get("a")
        if actor != AGENT:
            assert after is None or after.agent == 0
            continue
        if told.code == "refused":
            assert after == before
            continue
        assert after is not None
        had = before.labels if before is not None else {}
        assert {k: v for k, v in after.labels.items() if k != "role"} == {k: v for k, v in had.items() if k != "role"}
        if before is not None and before.address4 and not before.agent & AGENT_ADDRESS4:
            assert after.address4 == before.address4
        if after.agent & AGENT_ADDRESS4:
            assert after.address4 in (0, NET + 1, NET + 2)
    assert rows_of(log.state) == rows_of(replayed(log)) == rows_of(reloaded(log.state))


def _changed(event: NodesJoined) -> NodesChanged:
    return NodesChanged(
        event.envelope,
        event.zone,
        event.names,
        event.created_ms,
        event.uids,
        event.addresses4,
        event.addresses6,
        event.label_sets,
        event.label_index,
    )


def test_the_leave_of_a_node_joined_by_its_agent_ends_no_node_elsewhere() -> None:
    """The tombstone has no time, because in fleet the join of an agent does not replace a node of another zone."""
    log = limited()
    assert as_agent(log).code == "done"
    assert log.leave("a").code == "done"
    assert log.state.tombstones.rows["a"].last_present_ms == 0
    event = forward(log.state, 0, 0)
    assert event is not None and (event.names, event.last_present_ms) == (["a"], [])
    log.join("a")
    log.leave("a")
    assert log.state.tombstones.rows["a"].last_present_ms > 0

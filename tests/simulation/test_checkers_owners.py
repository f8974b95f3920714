"""Statements of node agents, accepted by a plane without checks: every violation is found, and nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import projections.fleet.membership.contested
import projections.fleet.membership.effects
import projections.zones.nodes.decide
from eventstore.log import FLEET_0
from projections.fleet.membership.rows import Member, ReachableState, RetainedStates
from schemas import events as e
from tests.seeded.bugs import patched, returns
from tests.simulation.checkers import owners
from tests.support.written_run import ZONES_0, WrittenRun
from tests.support.written_steps import WrittenSteps

AGENTS_UNCHECKED = ((projections.zones.nodes.decide, "is_node_agent", returns(False)),)
KEYS, NETWORKS = ["role"], ["10.7.0.0/16"]


def by_agent(
    log: WrittenRun, four: bytes = b"", labels: dict[str, str] | None = None, zone: str = "z"
) -> e.NodesJoined:
    """A join of node `n` by its agent."""
    envelope = log.said(zone, "node-agent/n")
    return e.NodesJoined(envelope, zone, ["n"], [], [], four, b"", [labels or {}], [0])


def limited(*zones: str) -> WrittenRun:
    """A log whose zones allow agents one label and one network."""
    log = WrittenRun()
    for mark, zone in enumerate(zones):
        log.write(ZONES_0, e.ZoneLimitsSet(log.stated(), mark, mark + 1, zone, 0, 0, NETWORKS, KEYS))
    return log


def faults(log: WrittenRun) -> list[str]:
    with patched(*AGENTS_UNCHECKED):
        return [fault.partition(": ")[2] for fault in owners.check_owners(log.evidence())]


def test_a_permitted_statement_of_an_agent_is_no_fault() -> None:
    log = limited("z")
    log.write(ZONES_0, by_agent(log, bytes((10, 7, 0, 1)), {"role": "web"}))
    log.write(ZONES_0, by_agent(log, bytes((10, 7, 0, 2)), {"role": "db"}))
    assert list(owners.check_owners(log.evidence())) == []


@pytest.mark.parametrize(
    ("four", "labels", "zone", "fault"),
    [
        (b"", {"trust": "high"}, "z", "an agent altered the labels ['trust'] of n, and may alter only ('role',)"),
        (
            bytes((10, 9, 0, 1)),
            {"trust": "low"},
            "z",
            "an agent gave n the address 10.9.0.1, which is in no network of the zone",
        ),
        (bytes((10, 7, 0, 2)), {"trust": "low"}, "z", "an agent replaced 10.0.0.111 of n, which an operator stated"),
        (bytes((10, 0, 0, 111)), {"trust": "low"}, "y", "an agent moved n from z to y"),
        (bytes((10, 0, 0, 111)), {"trust": "low"}, "new", "an agent created the zone of n"),
    ],
)
def test_an_agent_that_alters_data_of_an_operator_is_found(
    four: bytes, labels: dict[str, str], zone: str, fault: str
) -> None:
    log = limited("z", "y")
    log.write(ZONES_0, log.join("n", labels={"trust": "low"}))
    log.write(ZONES_0, by_agent(log, four, labels, zone))
    assert fault in faults(log)
    assert list(owners.check_owners(log.evidence())) == [], "the unpatched fold refuses it"


def test_a_taken_address_and_a_needless_wait_for_one_are_found() -> None:
    log = limited("z")
    held, from_agent = log.join("a"), by_agent(log)
    log.write(FLEET_0, log.forward(held, 0, 1))
    state = e.SUPERSEDED + e.AGENT_ADDRESS4
    log.write(FLEET_0, log.forward(replace(from_agent, addresses4=held.addresses4), 1, 2, states=[state]))
    assert list(owners.check_addresses(log.evidence())) == []
    with patched((projections.fleet.membership.contested.RecordAddresses, "_is_of_another", returns(False))):
        (fault,) = owners.check_addresses(log.evidence())
        assert fault.endswith("from its agent, although a has it")
    log.write(FLEET_0, log.forward(held, 2, 3, states=[e.LEFT]))
    assert list(owners.check_contested(log.evidence())) == []
    with patched((projections.fleet.membership.effects, "grant", returns({}))):
        (fault,) = owners.check_contested(log.evidence())
        assert fault.endswith("which no node has")


def test_an_address_of_a_retained_state_is_not_taken_from_another_node() -> None:
    """Node `n` waits for an address of another node. Its agent then states the address that a retained state of `n`
    has.
    """

    def member(slot: int, four: int, delayed_by: int = -1) -> Member:
        return Member("z", 1, "u", four, b"", {}, slot, False, delayed_by, 1)

    def report(**retained: RetainedStates) -> list[str]:
        stated = log.forward(by_agent(log), 1, 2, states=[e.SUPERSEDED + e.AGENT_ADDRESS4])
        steps = WrittenSteps().add(
            None, FLEET_0, members={"other": member(0, 7), "n": member(-1, 8, 1)}, retained=retained
        )
        steps.add(stated, FLEET_0, members={"n": member(1, 7)}, retained={"n": None})
        return list(owners.check_addresses(steps.evidence()))

    log = limited("z")
    assert report(n=RetainedStates((ReachableState(1, 1, 7, b"", {}),))) == []
    assert (
        report()
        == report(other=RetainedStates((ReachableState(1, 1, 7, b"", {}),)))
        == ["n got 0.0.0.7 from its agent, although other has it"]
    )

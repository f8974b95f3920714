"""Older revisions of a deployment's services and chain: how long they stay, and in which order they go."""

from __future__ import annotations

from collections.abc import Callable

from projections.resources.kinds import (
    DPU_DEPLOYMENT,
    DPU_SERVICE,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_CONFIGURATION,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_TEMPLATE,
    DPU_SET,
)
from projections.resources.stale import removable
from projections.resources.state import object_id
from tests.support.deployments import configuration, deployed, deployment
from tests.support.derivations import Derived, key

DEPLOYMENT = key(DPU_DEPLOYMENT, "dep")
INTERFACES = [{"name": "p0_if", "network": "mybrhbn"}]


def write_children(derived: Derived, created_ms: int) -> None:
    """State every wanted child that is not stated, as a driver writes it."""
    rows = derived.state.objects.rows
    children = [*derived.derivation.children.winners.values()]
    derived.apply({each.at.key: each.as_row(created_ms) for each in children if each.at.key not in rows})


def updated(times: int) -> Derived:
    """A deployment whose service `hbn` has changed, with the children of every revision."""
    derived = deployed()
    for number in range(times + 1):
        changed = configuration("hbn", {"b": number}, interfaces=INTERFACES)
        derived.apply({key(DPU_SERVICE_CONFIGURATION, "hbn"): changed})
        write_children(derived, 10 + number)
    return derived


def stale(derived: Derived, is_ready: Callable[[str], bool]) -> list[str]:
    """What may be deleted, by kind and service."""
    keys = removable(derived.state, derived.derivation, DEPLOYMENT, is_ready)
    return [f"{object_id(each).kind.split('.')[0]} {object_id(each).name.rpartition('-')[0]}" for each in keys]


def test_an_older_revision_stays_until_the_wanted_one_is_ready() -> None:
    derived = updated(1)
    assert stale(derived, lambda key: False) == []
    assert stale(derived, lambda key: "hbn-" in key) == ["DPUServiceInterface hbn-p0-if", "DPUService hbn"]
    everything = ["DPUServiceInterface hbn-p0-if", "DPUService agent", "DPUService hbn"]
    assert stale(derived, lambda key: True) == everything


def test_the_oldest_of_more_revisions_than_the_limit_go_at_once() -> None:
    derived = updated(3)
    derived.apply({DEPLOYMENT: deployment(revisionHistoryLimit=2)})
    keys = removable(derived.state, derived.derivation, DEPLOYMENT, lambda key: False)
    services = [derived.state.objects.rows[each].created_ms for each in keys if f"/{DPU_SERVICE}/" in each]
    assert sorted(services) == [10, 10, 11, 11]
    assert sum(f"/{DPU_SERVICE_INTERFACE}/" in each for each in keys) == 2


def test_what_a_deployment_wants_no_more_goes_without_a_successor() -> None:
    derived = updated(0)
    derived.apply({DEPLOYMENT: deployment(serviceChains=None, dpus={"bfb": "image", "flavor": "flavor"})})
    assert stale(derived, lambda key: False) == ["DPUServiceChain dep", "DPUSet dep"]


def test_nothing_goes_while_a_prerequisite_is_missing() -> None:
    derived = updated(1)
    derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): None})
    assert stale(derived, lambda key: True) == []


def test_a_deleted_deployment_loses_its_chain_before_its_sets() -> None:
    derived = updated(0)
    derived.apply({DEPLOYMENT: deployment()})
    gone = derived.state.objects.rows[DEPLOYMENT]
    derived.apply({DEPLOYMENT: type(gone)("u", 1, 5, 5, 0, {}, {}, gone.spec, deleted_ms=9)})
    order: list[str] = []
    while keys := removable(derived.state, derived.derivation, DEPLOYMENT, lambda key: True):
        order += dict.fromkeys(object_id(each).kind for each in keys)
        derived.apply(dict.fromkeys(keys))
    assert order == [DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, DPU_SERVICE, DPU_SET]

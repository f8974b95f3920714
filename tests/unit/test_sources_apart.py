"""What follows from the objects of one source cluster does not depend on those of another one, also if all names are
the same: a DPU cluster of another source is not seen. The objects are the manifests of DPF's users and of the demo."""

from __future__ import annotations

import json
from random import Random

import pytest

from deploy.demo.platform import manifests as demo
from drivers.simulators.bmc_network import BmcNetwork, parse_sizes
from projections.resources import kinds
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.discovery import BMC_ADDRESS
from projections.resources.rollouts.allocating import propose
from projections.resources.state import Observed, Resource, ResourcesState, object_id
from tests.support.derivations import SOURCE, content, full, row
from tests.support.dpf_manifests import CURRENT
from tests.unit.test_wanted_manifests import stated

OTHER = "other"
SIZES = parse_sizes("", "3x2")


def of_demo() -> dict[str, Resource]:
    """The demo's objects as rows, with a DPUDevice for each DPU."""
    network = BmcNetwork(Random(1), SIZES)
    devices = [
        demo.Object(
            kinds.DPU_DEVICE, dpu.serial.lower(), {"serialNumber": dpu.serial}, {}, {BMC_ADDRESS: dpu.bmc_address}
        )
        for dpu in network.dpus()
    ]
    objects = [
        demo.dpu_set(demo.FIRST_IMAGE),
        demo.deployment(demo.FIRST_IMAGE, [2]),
        *demo.services(),
        *devices,
        *demo.hosts(network, SIZES),
        *demo.foundations("http://images/{}.bfb"),
    ]
    return {
        f"{SOURCE}/{each.kind}/{demo.NAMESPACE}/{each.name}": row(
            each.spec, labels=each.labels, annotations=dict(each.annotations)
        )
        for each in objects
    }


def moved(rows: dict[str, Resource]) -> dict[str, Resource]:
    """The same objects in another source."""
    return {object_id(key)._replace(source=OTHER).key: each for key, each in rows.items()}


def state_of(rows: dict[str, Resource]) -> ResourcesState:
    """A state with these objects, whose DPU clusters are ready."""
    state = ResourcesState()
    state.apply(rows)
    ready = Observed("", json.dumps({"ready": True, "phase": "Ready"}), "test", 1, 1)
    state.observe({key: ready for key in rows if object_id(key).kind == kinds.DPU_CLUSTER})
    return state


def shown(state: ResourcesState, derivation: Derivation, source: str) -> dict[str, object]:
    """Everything that follows from the objects of a source: what is wanted, conditions, and DPU clusters."""
    world = World.of(state, derivation)
    wanted = [each for each in derivation.wanted() if object_id(each.owner).source == source]
    dpus = [key for key in derivation.dpus.winners if object_id(key).source == source]
    return {
        "wanted": wanted,
        "allocated": propose(state, derivation, dpus),
        "conditions": {
            key: conditions_of(key, world)
            for key in (*state.objects.rows, *(each.at.key for each in wanted))
            if object_id(key).source == source
        },
    }


@pytest.mark.parametrize("given", ["demo", "users"])
def test_each_source_is_derived_as_if_it_were_alone(given: str) -> None:
    rows = of_demo() if given == "demo" else stated(CURRENT)
    alone, both = state_of(rows), state_of(rows | moved(rows))
    expected, found = full(alone), full(both)
    assert any(each.at.source not in (SOURCE, "") for each in expected.wanted()), "objects of DPU clusters follow"
    assert shown(both, found, SOURCE) == shown(alone, expected, SOURCE)
    other = state_of(moved(rows))
    assert shown(both, found, OTHER) == shown(other, full(other), OTHER)


def test_without_a_dpu_cluster_of_their_own_dpus_wait_although_another_source_has_one() -> None:
    rows = of_demo()
    own = {key: each for key, each in rows.items() if object_id(key).kind != kinds.DPU_CLUSTER}
    state = state_of(own | moved(rows))
    derivation = full(state)
    found = propose(state, derivation, derivation.dpus.winners)
    assert {object_id(key).source for key in found.waiting} == {SOURCE}
    assert {object_id(key).source for key in found.clusters} == {OTHER}
    assert {object_id(cluster).source for cluster in found.clusters.values()} == {OTHER}


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_the_objects_of_the_demo_arrive_does_not_matter(seed: int) -> None:
    rows = of_demo()
    expected = full(state_of(rows))
    keys = sorted(rows)
    Random(seed).shuffle(keys)
    state, derivation = ResourcesState(), Derivation()
    for key in keys:
        state.apply({key: rows[key]})
        derivation.update(state, [key])
    assert content(derivation) == content(expected)
    assert [each.at.kind for each in expected.wanted()].count(kinds.DPU) == len(BmcNetwork(Random(1), SIZES).dpus())

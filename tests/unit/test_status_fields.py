"""Fields of a status that follow from other objects: in answers of the API, in manifests and in written statuses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.queries.resources import shown
from deploy.cli.resources.objects import manifest_of
from projections.kubernetes.resources.statuses import stamped, status_of
from projections.resources import views
from projections.resources.conditions.world import World
from projections.resources.install_identity import install_identity
from projections.resources.kinds import BFB, DPU, DPU_DEVICE, DPU_FLAVOR, DPU_NODE, DPU_SET
from projections.resources.state import Resource, object_id
from projections.resources.status_fields import status_fields
from tests.support.derivations import Derived, device, dpu_set, key, row

SET, D0 = key(DPU_SET, "all"), key(DPU, "a-d0")
PHASES = ("OS Installing", "Rebooting", "Ready", "Error")
SINCE = "1970-01-01T00:00:40Z"


def fleet(devices: int = 1, **rows: Resource) -> Derived:
    """A host with devices, and a DPUSet of all of them."""
    found = {key(BFB, "image"): row(changed_ms=10_000), key(DPU_FLAVOR, "flavor"): row(changed_ms=20_000)}
    found |= {key(DPU_NODE, "a"): row(), SET: dpu_set()}
    found |= {key(DPU_DEVICE, f"d{number}"): device("a", serial=str(number)) for number in range(devices)}
    return Derived(found | rows)


def fields(derived: Derived, name: str) -> dict[str, Any]:
    return status_fields(name, World.of(derived.state, derived.derivation))


def installed(derived: Derived, identity: str) -> None:
    derived.observe(D0, ready=True, phase="Ready", installed=identity)


def present(derived: Derived) -> str:
    """The identity of what the DPU is wanted to be installed with."""
    return install_identity(derived.state, derived.derivation.dpus.winners[D0]) or ""


@given(st.lists(st.sampled_from([None, *PHASES]), max_size=8))
def test_a_set_counts_its_dpus_by_phase(phases: list[str | None]) -> None:
    derived = fleet(len(phases))
    for number, phase in enumerate(phases):
        if phase is not None:
            derived.observe(key(DPU, f"a-d{number}"), ready=phase == "Ready", phase=phase)
    expected = Counter(phase or "Initializing" for phase in phases)
    assert fields(derived, SET) == ({"dpuStatistics": dict(expected)} if phases else {})


def test_a_dpu_says_since_when_it_differs_from_its_set() -> None:
    derived = fleet()
    assert fields(derived, D0) == {}, "nothing is known of it"
    installed(derived, present(derived))
    assert fields(derived, D0) == {}
    derived.apply({key(DPU_FLAVOR, "flavor"): row({"grub": {"kernelParameters": ["x"]}}, changed_ms=40_000)})
    assert fields(derived, D0)["outdated"] == {
        "timeStamp": SINCE,
        "reason": "OutdatedDPUFlavor",
        "message": "DPUSet dpf/all wants another configuration of the same image than the installed one",
    }
    installed(derived, present(derived))
    assert fields(derived, D0) == {}
    derived.apply({SET: dpu_set("newer"), key(BFB, "newer"): row(changed_ms=41_500)})
    found = fields(derived, D0)["outdated"]
    assert (found["timeStamp"], found["reason"]) == ("1970-01-01T00:00:41Z", "OutdatedBFB")
    assert found["message"] == "DPUSet dpf/all wants another image than the installed one"


@pytest.mark.parametrize(
    ("name", "expected"), [(SET, {"dpuStatistics": {"Ready": 1}}), (D0, {"outdated": {"reason": "OutdatedBFB"}})]
)
def test_manifests_and_written_statuses_have_them(name: str, expected: Mapping[str, Any]) -> None:
    derived = fleet()
    installed(derived, "older/0000000000")
    world = World.of(derived.state, derived.derivation)
    found = views.view(name, world)
    assert found is not None
    manifest = manifest_of(shown(object_id(name), found, world))
    for status in (manifest["status"], status_of(name, found.row, world, (), 1)):
        for field, value in expected.items():
            assert value.items() <= status[field].items()
        assert status["conditions"], "the other fields are there, too"


@pytest.mark.parametrize(
    ("before", "time"),
    [
        ({}, "later"),
        ({"outdated": {"reason": "OutdatedBFB", "timeStamp": "earlier", "message": ""}}, "earlier"),
        ({"outdated": {"reason": "OutdatedDPUFlavor", "timeStamp": "earlier", "message": ""}}, "later"),
    ],
)
def test_a_dpu_is_outdated_since_the_first_time(before: Mapping[str, Any], time: str) -> None:
    status = {"outdated": {"reason": "OutdatedBFB", "timeStamp": "later", "message": "m"}}
    assert stamped(status, json.loads(json.dumps(before)), 5)["outdated"] == {**status["outdated"], "timeStamp": time}

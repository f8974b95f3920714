"""Objects as users see them: stated or derived, with owner, phase and children; and plans as lines."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from deploy.cli.resources.plan_steps import plan_lines
from deploy.cli.resources.status_lines import cause_lines, child_lines, observation_lines
from projections.resources import views
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.forecast import Forecast
from projections.resources.kinds import BFB, DPU, DPU_CLUSTER, DPU_DEVICE, DPU_FLAVOR, DPU_SERVICE, DPU_SET
from projections.resources.observation import Observation
from projections.resources.plan import Action, PlanStep
from projections.resources.state import Placement, Resource, ResourcesChange, Rows
from schemas.api import dpuplane_pb2 as pb
from tests.support.deployments import deployed
from tests.support.derivations import SOURCE, Derived, device, dpu_set, key, row
from tests.unit.test_resource_conditions import READY, fleet, one, world

D0 = key(DPU, "a-d0")


def shown(name: str, seen: World) -> views.ObjectView:
    found = views.view(name, seen)
    assert found is not None
    return found


def phase(name: str, seen: World) -> str:
    return views.phase(name, shown(name, seen).row, conditions_of(name, seen), seen)


def test_a_derived_object_has_an_owner_an_identity_and_the_time_since_when_it_follows() -> None:
    derived = fleet(d0=device("a", created_ms=7))
    found = shown(D0, world(derived))
    assert (found.owner, found.is_derived, found.row.created_ms) == (key(DPU_SET, "new"), True, 7)
    assert shown(D0, world(fleet(d0=device("a", created_ms=7)))) == found, "the same in every process"
    derived.state.evolve(ResourcesChange(placements={D0: Placement("rack7", 3, since_ms=9)}))
    assert shown(D0, world(derived)).row.created_ms == 9, "it was selected later than its device was stated"
    derived.apply({key(DPU_SET, "new"): None})
    assert views.view(D0, world(derived)) is None
    derived.apply({key(DPU_SET, "new"): row(json.loads(dpu_set().spec), uid="another")})
    assert shown(D0, world(derived)).row.uid != found.row.uid, "another owner makes another object"


def test_an_object_that_is_stated_and_wanted_is_shown_as_wanted_under_its_own_identity() -> None:
    derived = fleet()
    derived.apply({D0: row({"bfb": "older"}, labels={"x": "1"}, uid="own")})
    found = shown(D0, world(derived))
    assert (found.row.uid, found.owner, found.is_derived) == ("own", key(DPU_SET, "new"), False)
    assert json.loads(found.row.spec)["bfb"] == "image"
    assert "x" not in found.row.labels and views.labels(D0, world(derived)) == found.row.labels


def test_keys_are_those_of_stated_and_wanted_objects_each_once() -> None:
    derived = fleet()
    derived.apply({D0: row({"bfb": "older"})})
    all_keys = [*views.keys(derived.state, derived.derivation)]
    assert sorted(all_keys) == sorted({*derived.state.objects.rows, D0})
    assert [*views.keys(derived.state, derived.derivation, SOURCE, DPU)] == [D0]
    assert not [*views.keys(derived.state, derived.derivation, "west")]


@pytest.mark.parametrize(
    ("observed", "status", "expected"),
    [
        ({}, "Unknown", "Initializing"),
        ({"BFB_image": READY}, "Unknown", "Initializing"),
        ({"BFB_image": READY, "DPU_a_d0": READY}, "True", "Ready"),
        ({"BFB_image": Observation(False, "Error", "404")}, "False", "Initializing"),
        ({"DPU_a_d0": Observation(False, "OS Installing")}, "Unknown", "OS Installing"),
    ],
)
def test_a_phase_is_the_reported_one_else_the_first(
    observed: dict[str, Observation], status: str, expected: str
) -> None:
    seen = world(fleet(), **observed)
    assert (one(conditions_of(D0, seen)).status, phase(D0, seen)) == (status, expected)


def test_deleted_objects_have_a_phase_and_kinds_without_phases_have_none() -> None:
    derived = fleet(image=row(deleted_ms=9))
    derived.apply({key(DPU_CLUSTER, "c"): row(deleted_ms=9), key(DPU_CLUSTER, "d"): row()})
    seen = world(derived)
    assert [
        phase(key(kind, name), seen) for kind, name in ((BFB, "image"), (DPU_CLUSTER, "c"), (DPU_CLUSTER, "d"))
    ] == [
        "Deleting",
        "NotReady",
        "Pending",
    ]
    assert phase(key(DPU_FLAVOR, "flavor"), seen) == phase(key(DPU_SET, "new"), seen) == ""


def test_children_are_grouped_by_kind_and_readiness() -> None:
    derived = fleet()
    names = {f"d{number}": device("a") for number in range(1, 6)}
    derived.apply({key(DPU_DEVICE, name): found for name, found in names.items()})
    seen = world(derived, BFB_image=READY, DPU_a_d2=READY)
    groups = views.children(key(DPU_SET, "new"), seen)
    assert [tuple(group) for group in groups] == [
        (DPU, "True", "Success", 1, ("a-d2",)),
        (DPU, "Unknown", "Pending", 5, ("a-d0", "a-d1", "a-d3")),
    ]
    lines = child_lines(
        [
            pb.ResourceChildren(kind=g.kind, status=g.status, reason=g.reason, count=g.size, names=g.names)
            for g in groups
        ]
    )
    assert [*lines] == [
        "DPU a-d2, Ready: True (Success)",
        "5 DPUs: a-d0, a-d1, a-d3 and 2 more, Ready: Unknown (Pending)",
    ]


def test_a_set_has_no_children_that_an_older_set_has() -> None:
    seen = world(fleet(old=dpu_set(created_ms=4)))
    assert [group.size for group in views.children(key(DPU_SET, "old"), seen)] == [1]
    assert not views.children(key(DPU_SET, "new"), seen)


def test_the_children_of_a_deployment_are_of_several_kinds() -> None:
    derived = deployed()
    name = next(iter(derived.derivation.deployments))
    found = {group.kind: group.size for group in views.children(name, world(derived))}
    assert found[DPU_SET] == len(derived.names(DPU_SET)) and found[DPU_SERVICE] == len(derived.names(DPU_SERVICE))
    child = next(iter(derived.derivation.children.of_owner(name)))
    assert shown(child, world(derived)).owner == name


def forecast(rows: Mapping[str, Resource], change: Rows) -> list[PlanStep]:
    found = Forecast(rows, change)
    while not found.advance():
        pass
    return found.steps()


def test_a_forecast_plans_from_rows_and_leaves_them_as_they_are() -> None:
    derived = fleet()
    rows = dict(derived.state.objects.rows)
    change: dict[str, Resource | None] = {key(DPU_SET, "new"): dpu_set("other", created_ms=5)}
    steps = forecast(rows, change)
    assert [(step.action, step.key) for step in steps] == [(Action.REFLASH, D0)]
    assert rows == derived.state.objects.rows
    assert forecast(rows, {}) == []
    assert [step.action for step in forecast(rows, {key(DPU_SET, "new"): None})] == [Action.REMOVE]


def test_steps_are_lines_with_the_parts_of_fields_that_differ() -> None:
    name = pb.ResourceName(kind=DPU, namespace="dpf", name="a-d0")
    owner = pb.ResourceName(kind=DPU_SET, namespace="dpf", name="new")
    labels = pb.FieldChange(field="labels", before='{"a":"1","b":"2"}', after='{"b":"3","c":"4"}')
    steps = [
        pb.PlanStep(action="reflash", name=name, owner=owner, changes=[pb.FieldChange(field="bfb", before='"a"')]),
        pb.PlanStep(action="relabel", name=name, owner=owner, changes=[labels]),
        pb.PlanStep(action="remove", name=name, owner=name, changes=[labels]),
    ]
    assert [*plan_lines(steps)] == [
        "1. reflash DPU dpf/a-d0: bfb a -> none (for DPUSet dpf/new)",
        "2. relabel DPU dpf/a-d0: labels.a 1 -> none; labels.b 2 -> 3; labels.c none -> 4 (for DPUSet dpf/new)",
        "3. remove DPU dpf/a-d0",
    ]
    long = pb.FieldChange(field="nodeEffect", before="null", after=json.dumps("x" * 100))
    (line,) = plan_lines([pb.PlanStep(action="update", name=name, owner=name, changes=[long])])
    assert line.endswith(f"nodeEffect none -> {'x' * 60}...")


def test_causes_are_indented_by_depth() -> None:
    causes = [pb.ResourceCause(depth=1, message="a waits"), pb.ResourceCause(depth=2, message="b failed", root=True)]
    assert [*cause_lines(causes)] == ["a waits", "  b failed *"]


def test_a_derivation_without_objects_has_no_views() -> None:
    empty = Derived()
    assert views.view(D0, world(empty)) is None and not views.labels(D0, world(empty))


def test_an_observation_shows_times_as_times_and_says_what_an_ordinal_counts() -> None:
    fields = {"ready": False, "sinceMs": 1_700_000_000_000, "scannedMs": 0, "ordinal": 3, "zone": "rack7"}
    found = pb.Resource(observation=pb.ResourceObservation(fields=json.dumps(fields), observer="zone/rack7"))
    *lines, reported = observation_lines(found)
    assert lines == [
        "ordinal in the zone: 3",
        "ready: false",
        "scannedMs: 0",
        "since: 2023-11-14T22:13:20.000Z",
        "zone: rack7",
    ]
    assert reported.startswith("reported by zone/rack7")

"""Records that no edge of the plane wrote: every replica decides about them alike, in bounded time."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time

import pytest

from commands.requests.resources import check_object
from eventstore.folding.fold import Outcome
from projections.pages import page
from projections.resources import fold
from projections.resources.nesting import NESTING_MAX, is_nested_deeply
from projections.resources.references import SERVICES
from schemas.api import dpuplane_pb2 as pb
from tests.support.resources import BFB, DPU_SET, EAST, NAMESPACE, DeliveredResources, bfb

TEMPLATE, DEPLOYMENT = f"DPUServiceTemplate.{SERVICES}", f"DPUDeployment.{SERVICES}"


def nested(depth: int) -> str:
    """A spec with this many levels."""
    return '{"a":' * depth + "1" + "}" * depth


def below(frames: int, call: Callable[[], Outcome]) -> Outcome:
    """The result of a call with this many more frames on the stack."""
    return call() if frames == 0 else below(frames - 1, call)


@pytest.mark.parametrize(("depth", "code"), [(NESTING_MAX, "done"), (NESTING_MAX + 1, "refused"), (940, "refused")])
def test_a_deep_spec_has_one_outcome_however_deep_the_stack_of_the_replica_is(depth: int, code: str) -> None:
    for frames in (0, 200, 700):
        log = DeliveredResources()
        outcome = below(frames, lambda log=log: log.apply(DPU_SET, "a", nested(depth)))  # type: ignore[misc]
        assert outcome.code == code, f"{frames} frames: {outcome.reason}"
        assert code == "done" or outcome.reason == "specs[0]: objects and lists are nested more than 100 levels deep"


def test_the_depth_of_a_text_is_measured_once_through_the_text() -> None:
    unfinished = "[" * NESTING_MAX + '"' + '\\"' * 90_000 + "[" * 10
    before_s = process_time()
    assert not is_nested_deeply(unfinished)
    assert process_time() - before_s < 1
    assert is_nested_deeply(r'"\\"' + "[" * (NESTING_MAX + 1))
    assert not is_nested_deeply('["\\\n' + "[" * NESTING_MAX + '"]')


def test_the_deletion_of_what_refers_to_thousands_of_deleted_objects_takes_less_than_seconds() -> None:
    log = DeliveredResources()
    templates, deployments = [f"t{number}" for number in range(1_000)], [f"d{number}" for number in range(100)]
    spec = json.dumps({"services": {name: {"serviceTemplate": name} for name in templates}})
    log.append(log.applied(TEMPLATE, templates, ["{}"]))
    for name in deployments:
        log.apply(DEPLOYMENT, name, spec)
    log.append(log.deleted([TEMPLATE], templates))
    assert len(log.state.objects.rows) == 1_100
    before_s = process_time()
    log.append(log.deleted([DEPLOYMENT], deployments))
    assert process_time() - before_s < 3
    assert not log.state.objects.rows


def test_a_text_of_the_largest_size_is_refused_whatever_it_is() -> None:
    log = DeliveredResources()
    for spec in ("[" * 200_000, "{" * 200_000, '{"a":"' + "[" * 150_000, "\\" * 200_000):
        assert log.apply(BFB, "a", spec).code == "refused"


def test_only_new_objects_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    log = DeliveredResources()
    log.append(log.applied(BFB, ["a", "b"], [bfb("1")]))
    monkeypatch.setattr(fold, "MAX_OBJECTS", 3)
    outcome = log.append(log.applied(BFB, ["a", "b", "c", "d"], [bfb("2")]))
    assert [(item.name[-1], item.code) for item in outcome.items] == [
        ("a", "done"),
        ("b", "done"),
        ("c", "done"),
        ("d", "refused"),
    ]
    assert len(log.state.objects.rows) == 3


def test_a_request_about_an_object_of_a_cluster_is_refused_before_anything_is_appended() -> None:
    log = DeliveredResources()
    log.report(BFB, "image", bfb("1"), uid="u", generation=1)
    given = pb.ResourceSpec(kind=BFB, namespace=NAMESPACE, name="image", spec=bfb("1"))
    checked = check_object(given, log.row(BFB, "image", EAST))
    assert checked.faults == ("metadata.name: image belongs to a Kubernetes cluster, which alone may change it",)
    assert checked.is_refused_by_known


def test_the_longest_key_that_the_fold_accepts_can_begin_a_page() -> None:
    log = DeliveredResources()
    longest = {"source": "s" * 63, "kinds": ["K" * 63 + "." + "g" * 253], "namespaces": ["n" * 253]}
    log.append(log.applied(BFB, ["a" * 253, "b" * 253], ["{}"], **longest))
    keys = sorted(log.state.objects.rows)
    first = page([0], lambda _: keys, 1, "")
    assert [key for _, key in (*first.keys, *page([0], lambda _: keys, 1, first.next_token).keys)] == keys
    assert len(keys) == 2

"""Records that no edge of the plane wrote: every replica decides about them alike, in bounded time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from commands.requests.resources import check_object
from eventstore.folding.fold import Outcome
from projections.pages import page
from projections.resources import fold, removals, state
from projections.resources.json_limits import _TOKEN, DIGITS_MAX, NESTING_MAX, fault_of_limits
from projections.resources.references import SERVICES
from projections.resources.state import targets
from schemas.api import dpuplane_pb2 as pb
from tests.support.resources import BFB, DPU_SET, EAST, NAMESPACE, DeliveredResources, bfb, dpu_set

COMPARED_MAX = 20
"""Comparisons for each reference. A search through the references would need hundreds."""
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
    assert fault_of_limits(unfinished) is None
    assert [found.end() - found.start() for found in _TOKEN.finditer(unfinished)] == [1] * NESTING_MAX + [180_011]
    assert fault_of_limits(r'"\\"' + "[" * (NESTING_MAX + 1))
    assert fault_of_limits('["\\\n' + "[" * NESTING_MAX + '"]') is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("1" * DIGITS_MAX, "done"),
        ("1" * (DIGITS_MAX + 1), "refused"),
        (f"-0.{'1' * 700}", "refused"),
        (f'"{"1" * 700}"', "done"),
        (f'"\\"{"1" * 700}"', "done"),
    ],
)
def test_a_number_is_taken_whatever_the_setting_of_a_process_for_digits(value: str, code: str) -> None:
    before = sys.get_int_max_str_digits()
    try:
        for most in (640, 0):
            sys.set_int_max_str_digits(most)
            outcome = DeliveredResources().apply(BFB, "a", f'{{"a": {value}}}')
            assert outcome.code == code
            assert code == "done" or outcome.reason == "specs[0]: a number has more than 64 digits"
    finally:
        sys.set_int_max_str_digits(before)


class CountedKey(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return str.__eq__(self, other)


def test_the_removal_of_deleted_objects_compares_each_reference_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (removals, state):
        monkeypatch.setattr(module, "targets", lambda *about: tuple(map(CountedKey, targets(*about))))
    log = DeliveredResources()
    templates, deployments = [f"t{number}" for number in range(1_000)], [f"d{number}" for number in range(20)]
    spec = json.dumps({"services": {name: {"serviceTemplate": name} for name in templates}})
    log.append(log.applied(TEMPLATE, templates, ["{}"]))
    for name in deployments:
        log.apply(DEPLOYMENT, name, spec)
    log.append(log.deleted([TEMPLATE], templates))
    assert len(log.state.objects.rows) == 1_020
    CountedKey.compared = 0
    log.append(log.deleted([DEPLOYMENT], deployments))
    assert not log.state.objects.rows
    assert CountedKey.compared < COMPARED_MAX * len(templates) * len(deployments)


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


def test_a_change_of_an_object_in_deletion_is_refused_for_the_deletion_alone() -> None:
    log = DeliveredResources()
    log.apply(BFB, "image", bfb("1"))
    log.apply(DPU_SET, "user", dpu_set("image"))
    log.delete(BFB, "image")
    changed = pb.ResourceSpec(kind=BFB, namespace=NAMESPACE, name="image", spec=bfb("2"))
    checked = check_object(changed, log.row(BFB, "image"))
    waits = "metadata.name: image is being deleted, and waits for the objects that use it; apply it again afterwards"
    assert (checked.faults, checked.is_refused_by_known) == ((waits,), True)
    faulty = check_object(pb.ResourceSpec(kind=BFB, namespace=NAMESPACE, name="image"), log.row(BFB, "image"))
    assert faulty.faults[-1] == waits and len(faulty.faults) > 1, "faults of the manifest itself stay to be mended"
    assert not faulty.is_refused_by_known


def test_the_longest_key_that_the_fold_accepts_can_begin_a_page() -> None:
    log = DeliveredResources()
    longest = {"source": "s" * 63, "kinds": ["K" * 63 + "." + "g" * 253], "namespaces": ["n" * 253]}
    log.append(log.applied(BFB, ["a" * 253, "b" * 253], ["{}"], **longest))
    keys = sorted(log.state.objects.rows)
    first = page([0], lambda _: keys, 1, "")
    assert [key for _, key in (*first.keys, *page([0], lambda _: keys, 1, first.next_token).keys)] == keys
    assert len(keys) == 2

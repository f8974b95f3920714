"""Annotations of rollouts: what they mean, and their faults."""

from __future__ import annotations

import pytest

from commands.requests.resources import check_object
from projections.resources import kinds
from projections.resources.rollouts.strategy import Strategy, annotation_faults, strategy_of
from projections.resources.specs import DPUSetSpec
from schemas.api import dpuplane_pb2 as pb


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("waves", "50%,10%", "must not decrease"),
        ("waves", "", "must be numbers"),
        ("bake-time", "soon", "must be a duration"),
        ("bake-time", "9999h", "must be at most 720h"),
        ("failure-budget", "-1", "must be a number"),
        ("failure-domain", "a b", "must be the key of a label"),
        ("paused", "yes", "must be true or false"),
        ("wave", "1", "is unknown"),
    ],
)
def test_faults_of_annotations_name_the_annotation(name: str, text: str, fault: str) -> None:
    annotation = f"dpuplane.io/rollout-{name}"
    found = strategy_of(DPUSetSpec(), {annotation: text})
    assert isinstance(found, str)
    assert found.startswith(f"annotation {annotation}: ")
    assert fault in found
    (sentence,) = annotation_faults({annotation: text, "example.org/owner": "net"})
    assert sentence.startswith(f'metadata.annotations["{annotation}"]: ')
    assert fault in sentence


@pytest.mark.parametrize("kind", [kinds.DPU_SET, kinds.DPU_DEPLOYMENT])
def test_a_request_with_a_faulty_annotation_is_refused(kind: str) -> None:
    annotations = {"dpuplane.io/rollout-wave": "1", "dpuplane.io/rollout-bake-time": "soon"}
    given = pb.ResourceSpec(kind=kind, namespace="dpf", name="new", annotations=annotations, spec="{}")
    found = [fault.partition(":")[0] for fault in check_object(given, None).faults if "annotations" in fault]
    assert found == [f'metadata.annotations["{name}"]' for name in sorted(annotations)]
    given.kind = kinds.BFB
    assert not any("annotations" in fault for fault in check_object(given, None).faults)


@pytest.mark.parametrize(
    ("waves", "total", "ends"),
    [
        ("1,1%,10%,100%", 1000, [1, 10, 100, 1000]),
        ("1,1%,10%", 10, [1, 1, 1, 10]),
        ("5", 3, [3, 3]),
        ("1", 0, [0, 0]),
    ],
)
def test_waves_are_shares_of_the_set(waves: str, total: int, ends: list[int]) -> None:
    strategy = strategy_of(DPUSetSpec(), {"dpuplane.io/rollout-waves": waves})
    assert isinstance(strategy, Strategy)
    assert strategy.wave_ends(total) == ends

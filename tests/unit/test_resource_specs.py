"""Reading specs: typed values, or a fault. Nothing that a user writes raises."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.resources.json_limits import NESTING_MAX
from projections.resources.kinds import (
    DPU_DEPLOYMENT,
    DPU_DEVICE,
    DPU_NODE,
    DPU_SERVICE_CONFIGURATION,
    DPU_SET,
)
from projections.resources.specs import DPUDeviceSpec, read
from projections.resources.state import Resource
from tests.support.deployments import deployment, parts
from tests.support.derivations import Derived, device, dpu_set, key, row


def with_text(spec: str) -> Resource:
    return Resource("u", 1, 1, 1, 0, {}, {}, spec)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "spec: Expected `object`, got `array`"),
        ('{"serialNumber": 1}', "spec: Expected `str`, got `int` - at `$.serialNumber`"),
        ('{"serialNumber": "\\ud800"}', "spec: "),
        ("{", "spec: "),
        ("\ud800", "spec: "),
        (json.dumps({"values": {"a": nested(NESTING_MAX)}}), "nested more than 100 levels deep"),
        ("[" * 100_000, "nested more than 100 levels deep"),
        (f'{{"values": {{"a": {"1" * 65}}}}}', "a number has more than 64 digits"),
    ],
)
def test_a_spec_that_cannot_be_read_is_a_fault(text: str, fault: str) -> None:
    found = read(DPUDeviceSpec, with_text(text))
    assert isinstance(found, str)
    assert fault in found


def test_brackets_in_texts_do_not_count_as_nesting() -> None:
    serial = '{["' * 200
    assert read(DPUDeviceSpec, row({"serialNumber": serial})) == DPUDeviceSpec(serial_number=serial)
    assert isinstance(read(DPUDeviceSpec, row({"values": {"a": [{}] * 200}})), DPUDeviceSpec)


def test_specs_at_the_limit_of_nesting_are_derived() -> None:
    values = {"v": nested(NESTING_MAX - 6)}
    settings = {"deploymentServiceName": "hbn", "serviceConfiguration": {"helmChart": {"values": values}}}
    rows = parts() | {
        key(DPU_SERVICE_CONFIGURATION, "hbn"): row(settings),
        key(DPU_DEPLOYMENT, "dep"): deployment(),
        key(DPU_NODE, "a"): row(),
        key(DPU_DEVICE, "d0"): row({"serialNumber": "s", "values": values}, labels=device("a").labels),
        key(DPU_SET, "one"): dpu_set(),
    }
    derived = Derived(rows)
    assert not derived.derivation.holds(key(DPU_DEPLOYMENT, "dep"))
    assert any(
        each.spec.get("helmChart", {}).get("values", {}).get("v") == values["v"] for each in derived.derivation.wanted()
    )

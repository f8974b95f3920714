"""The generated definitions of DPF's kinds compared, field by field, with those of DPF's current generation.

What DPF's definitions say is written down as facts in data/dpf_current_fields.yaml, with the version that each kind was
read from. Each difference is listed with its reason in data/dpf_current_differences.yaml.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.kinds import Kind
from tests.support.dpf_differences import Listed, differences
from tests.support.dpf_facts import Facts

DATA = Path(__file__).parent / "data"


@lru_cache
def facts() -> Facts:
    return Facts((DATA / "dpf_current_fields.yaml").read_text(encoding="utf-8"))


@lru_cache
def listed() -> Listed:
    return Listed.read(DATA / "dpf_current_differences.yaml")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_difference_from_the_current_generation_is_listed_and_no_other(kind: Kind) -> None:
    assert sorted(differences(facts().definition(kind.name), definition(kind))) == listed().of(kind.name)


def test_the_facts_are_of_every_kind() -> None:
    assert facts().kinds == {kind.name for kind in KINDS}
    assert listed().kinds <= facts().kinds


TEXT = """
shapes:
  Port: |
    object
      number! int32 min=1 max=9
      - self.number > 0
kinds:
  K:
    group: g
    plural: ks
    columns: {Age: .metadata.creationTimestamp date}
    fields: |
      - self.metadata.name.size() <= 9
      spec! object
        size integer enum=[1, 2] default=1
        names string[] maxItems=2 atomic immutable of pattern=^[a-z]+$
        ports Port{} minProperties=1
          - self.all(name, name != '')
        more string[]
          items - self != ""
        main object
          +Port
          any any
      status object default={"phase":"New"}
        seen time
"""


def test_a_definition_is_built_from_its_facts() -> None:
    found = Facts(TEXT).definition("K")["spec"]
    (version,) = found["versions"]
    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"] == [
        {"name": "Age", "jsonPath": ".metadata.creationTimestamp", "type": "date"}
    ]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["required"] == ["spec"]
    assert schema["x-kubernetes-validations"] == [{"rule": "self.metadata.name.size() <= 9"}]
    spec = schema["properties"]["spec"]["properties"]
    assert spec["size"]["enum"] == [1, 2] and spec["size"]["default"] == 1
    assert spec["names"]["x-kubernetes-list-type"] == "atomic"
    assert spec["names"]["x-kubernetes-validations"] == [{"rule": "self == oldSelf"}]
    assert spec["names"]["items"] == {"type": "string", "pattern": "^[a-z]+$", "x-kubernetes-validations": []}
    assert spec["ports"]["x-kubernetes-validations"] == [{"rule": "self.all(name, name != '')"}]
    assert spec["ports"]["additionalProperties"]["required"] == ["number"]
    assert spec["main"]["properties"].keys() == {"number", "any"}
    assert spec["more"]["items"]["x-kubernetes-validations"] == [{"rule": 'self != ""'}]
    assert spec["main"]["x-kubernetes-validations"] == [{"rule": "self.number > 0"}]
    status = schema["properties"]["status"]
    assert status["default"] == {"phase": "New"}
    assert status["properties"]["seen"] == {"type": "string", "format": "date-time", "x-kubernetes-validations": []}

"""The generated definitions of DPF's kinds compared, field by field, with those of release 24.10.

DPF_CRDS names a folder with DPF's definitions (deploy/helm/dpf-operator/templates/crds of NVIDIA/doca-platform at its
release 24.10); without it the comparison is not selected. Each difference is listed with its reason.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.kinds import Kind
from tests.support.dpf_differences import Listed, differences
from tests.support.kubernetes.fixtures import DPF_CRDS

LISTED = Path(__file__).parent / "data" / "dpf_24_10_differences.yaml"


@lru_cache
def theirs() -> dict[str, Any]:
    """DPF's definitions by kind."""
    found = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in Path(os.environ[DPF_CRDS]).glob("*.yaml")]
    return {document["spec"]["names"]["kind"]: document for document in found}


@lru_cache
def listed() -> Listed:
    return Listed.read(LISTED)


@pytest.mark.dpf_crds
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_difference_from_release_24_10_is_listed_and_no_other(kind: Kind) -> None:
    document = theirs().get(kind.name)
    found = [] if document is None else sorted(differences(document, definition(kind)))
    assert found == listed().of(kind.name)


@pytest.mark.dpf_crds
def test_the_folder_has_the_definitions_of_release_24_10() -> None:
    assert len(theirs().keys() & {kind.name for kind in KINDS}) == 16


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 1, "maximum": 5},
                "names": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            },
            "x-kubernetes-validations": [{"rule": "self == oldSelf"}],
        }
    },
}


def document(schema: dict[str, Any]) -> dict[str, Any]:
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return {"spec": {"group": "g", "scope": "Namespaced", "names": {"kind": "K"}, "versions": [version]}}


def changed(**parts: Any) -> list[str]:
    """The differences of the schema from one whose spec has these keywords."""
    spec = SCHEMA["properties"]["spec"] | parts
    other = SCHEMA | {"properties": {"spec": spec}}
    return list(differences(document(SCHEMA), document(other)))


def test_each_sort_of_difference_is_found() -> None:
    fields = SCHEMA["properties"]["spec"]["properties"]
    assert changed() == []
    assert changed(properties={**fields, "more": {"type": "string"}}) == [".spec.more: only ours"]
    assert changed(properties={"size": fields["size"]}) == [".spec.names: only theirs"]
    assert changed(required=["size"]) == [".spec.size: required: false -> true"]
    assert changed(**{"x-kubernetes-validations": []}) == [".spec: rule only theirs: self == oldSelf"]
    size = {"type": "integer", "default": 2, "maximum": 6}
    assert changed(properties={**fields, "size": size}) == [
        ".spec.size: default: 1 -> 2",
        ".spec.size: maximum: 5 -> 6",
    ]
    names = {"type": "array", "items": {"type": "string", "enum": ["b", "a", "c"]}}
    assert changed(properties={**fields, "names": names}) == ['.spec.names[]: enum: ["a", "b"] -> ["a", "b", "c"]']

"""The registry of DPF's kinds, and what every definition of them must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from schemas.resources import KINDS as PLANE_KINDS
from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from schemas.resources.dpf import DPF_KINDS, KINDS, REFUSED_GROUPS
from schemas.resources.dpf.names import OPERATOR, PROVISIONING, SERVICES, service_version
from schemas.resources.kinds import Kind
from schemas.resources.validation import schema_of

KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
UNTYPED = {"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"}


def parts_of(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from parts_of(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from parts_of(schema[key], path)


def test_the_registry_has_the_kinds_of_three_groups_by_group_and_name() -> None:
    assert len(KINDS) == len(DPF_KINDS) == 23
    assert {kind.group for kind in KINDS} == {OPERATOR, PROVISIONING, SERVICES}
    assert DPF_KINDS[PROVISIONING, "DPUSet"].path("lab", "edge") == (
        "/apis/provisioning.dpu.nvidia.com/v1alpha1/namespaces/lab/dpusets/edge"
    )


def test_groups_that_are_refused_have_no_kinds_and_a_sentence_each() -> None:
    assert not {kind.group for kind in KINDS} & REFUSED_GROUPS.keys()
    assert REFUSED_GROUPS.keys() == {
        "vpc.dpu.nvidia.com",
        "storage.dpu.nvidia.com",
        "noderesources.dpu.nvidia.com",
    }
    assert all(sentence.endswith(" are not supported") for sentence in REFUSED_GROUPS.values())


def test_the_names_of_all_kinds_are_unique() -> None:
    names = [f"{kind.plural}.{kind.group}" for kind in (*PLANE_KINDS, *UPSTREAM_KINDS, *KINDS)]
    assert len(names) == len(set(names))


@KIND
def test_a_schema_is_structural(kind: Kind) -> None:
    for path, schema in parts_of(schema_of(kind)):
        assert not {"$ref", "$defs", "anyOf", "allOf", "title", "const"} & schema.keys(), path
        assert "type" in schema or UNTYPED & schema.keys(), path


@KIND
def test_columns_point_at_fields(kind: Kind) -> None:
    paths = {path for path, _ in parts_of(schema_of(kind))}
    for column in definition(kind)["spec"]["versions"][0].get("additionalPrinterColumns", []):
        path = column["jsonPath"]
        known = (".metadata.creationTimestamp", ".status.conditions[?", ".status.operationalConditions[?")
        assert path.startswith(known) or "['service','physical']" in path or path in paths, path


@KIND
def test_a_definition_is_kept_by_helm_and_has_what_the_api_server_needs(kind: Kind) -> None:
    found = definition(kind)
    assert found["metadata"] == {
        "annotations": {"helm.sh/resource-policy": "keep"},
        "name": f"{kind.plural}.{kind.group}",
    }
    assert found["spec"]["scope"] == "Namespaced"
    assert ("subresources" in found["spec"]["versions"][0]) == ("status" in schema_of(kind)["properties"])


def test_the_label_of_a_services_version_has_its_name() -> None:
    assert service_version("hbn") == "svc.dpu.nvidia.com/dpuservice-hbn-version"

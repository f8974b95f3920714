"""The definitions of ComputeDomain and ComputeDomainClique, compared field by field with upstream's own.

UPSTREAM_CRDS names a folder with the driver's definitions (deployments/helm/dra-driver-nvidia-gpu/crds of
kubernetes-sigs/dra-driver-nvidia-gpu); without it the comparison is not selected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from schemas.resources.kinds import Kind
from tests.support.kubernetes.fixtures import UPSTREAM_CRDS

_ENVELOPE = {"apiVersion", "kind", "metadata"}


def named(kind: Kind) -> str:
    return kind.name


def accepted(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema accepts, without what it says about it."""
    found = {key: value for key, value in schema.items() if key not in ("description", "format")}
    for key in ("required", "enum"):
        if key in found:
            found[key] = sorted(found[key])
    if "properties" in found:
        found["properties"] = {name: accepted(part) for name, part in found["properties"].items()}
    if "items" in found:
        found["items"] = accepted(found["items"])
    return found


@pytest.mark.upstream_crds
@pytest.mark.parametrize("kind", UPSTREAM_KINDS, ids=named)
def test_a_definition_accepts_what_upstreams_accepts(kind: Kind) -> None:
    theirs = yaml.safe_load((Path(os.environ[UPSTREAM_CRDS]) / f"{kind.group}_{kind.plural}.yaml").read_text())
    ours = definition(kind)
    assert ours["metadata"]["name"] == theirs["metadata"]["name"]
    assert ours["spec"]["scope"] == theirs["spec"]["scope"]
    for name in ("kind", "listKind", "plural", "singular"):
        assert ours["spec"]["names"][name] == theirs["spec"]["names"][name]
    (mine,), (version,) = ours["spec"]["versions"], theirs["spec"]["versions"]
    assert (mine["name"], mine.get("subresources")) == (version["name"], version.get("subresources"))
    own, other = (accepted(each["schema"]["openAPIV3Schema"]) for each in (mine, version))
    for fields in (own, other):
        fields["properties"] = {name: part for name, part in fields["properties"].items() if name not in _ENVELOPE}
    assert own == other


@pytest.mark.parametrize("kind", UPSTREAM_KINDS, ids=named)
def test_a_definition_is_structural_and_names_the_keys_of_its_lists(kind: Kind) -> None:
    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rows = schema["properties"]["daemons"] if kind.plural.endswith("cliques") else schema["properties"]["status"]
    rows = rows["properties"]["nodes"] if "properties" in rows else rows
    assert rows["x-kubernetes-list-type"] == "map"
    assert set(rows["x-kubernetes-list-map-keys"]) <= set(rows["items"]["required"])
    assert rows["items"]["properties"]["status"] | {"description": ""} == {
        "description": "",
        "type": "string",
        "enum": ["Ready", "NotReady"],
        "default": "NotReady",
    }

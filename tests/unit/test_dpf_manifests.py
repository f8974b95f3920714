"""Manifests of DPF's users: each is accepted without Kubernetes, and together they use every field of every kind."""

from __future__ import annotations

from functools import lru_cache

import pytest

from schemas.resources.dpf import KINDS
from schemas.resources.kinds import Kind
from schemas.resources.validation import unreplaced_variables, validate
from tests.support.dpf_manifests import CURRENT, OLD, Given, fields_of, manifests, used_fields

KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
LATER = {
    "BlueFieldSoftware",
    "DPUDevice",
    "DPUDiscovery",
    "DPUFlavorTemplate",
    "DPUNode",
    "DPUNodeMaintenance",
    "DPUServiceNAD",
}
"""Kinds that release 24.10 does not have."""


@pytest.mark.parametrize("given", manifests(), ids=str)
def test_a_manifest_is_accepted(given: Given) -> None:
    assert [str(fault) for fault in validate(given.kind, given.manifest).faults] == []
    assert list(unreplaced_variables(given.kind, given.manifest)) == []


@pytest.mark.parametrize("given", manifests(), ids=str)
def test_a_manifest_is_read_by_its_model(given: Given) -> None:
    completed = validate(given.kind, given.manifest).manifest
    read = given.kind.model.model_validate(completed)
    written = read.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    assert written["spec"] == completed["spec"]


@pytest.mark.parametrize("given", manifests(), ids=str)
def test_defaults_change_nothing_when_applied_again(given: Given) -> None:
    once = validate(given.kind, given.manifest).manifest
    assert validate(given.kind, once, once) == (once, ())


@KIND
def test_every_kind_has_manifests_of_each_generation(kind: Kind) -> None:
    generations = {given.generation for given in manifests() if given.kind == kind}
    assert generations == ({CURRENT} if kind.name in LATER else {CURRENT, OLD})


@KIND
def test_every_field_of_a_spec_is_used_by_a_manifest(kind: Kind) -> None:
    """Parts that several kinds share need one manifest for each field, of any kind."""
    spec = kind.model.model_fields["spec"].annotation
    assert fields_of(spec) - used_by_any() == set()


@lru_cache
def used_by_any() -> set[tuple[str, str]]:
    return set().union(*(used_fields(given.kind.model.model_validate(given.manifest)) for given in manifests()))

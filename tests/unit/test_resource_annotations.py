"""Annotations of objects without Kubernetes: a manifest that does not know of an edit does not undo it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.resources import BFB, DeliveredResources, bfb

Annotations = dict[str, str]


def annotations_of(log: DeliveredResources) -> Annotations:
    row = log.row(BFB, "a")
    assert row is not None
    return row.annotations


def manifest(log: DeliveredResources, annotations: Annotations) -> str:
    return log.apply(BFB, "a", bfb("1"), annotations=[annotations]).code


def edit(log: DeliveredResources, annotations: Annotations) -> str:
    return log.apply(BFB, "a", bfb("1"), annotations=[annotations], expected_revisions=[log.revision(BFB, "a")]).code


def test_a_manifest_keeps_what_an_edit_has_set() -> None:
    log = DeliveredResources()
    manifest(log, {"own": "1"})
    assert edit(log, {"own": "1", "asked": "yes"}) == "done"
    assert manifest(log, {"own": "1"}) == "unchanged", "the same folder, applied again"
    assert annotations_of(log) == {"asked": "yes", "own": "1"}
    assert edit(log, {"own": "1"}) == "done", "an edit removes it"
    assert annotations_of(log) == {"own": "1"}


def test_an_annotation_that_a_manifest_has_is_the_manifests() -> None:
    log = DeliveredResources()
    manifest(log, {})
    edit(log, {"a": "edited"})
    manifest(log, {"a": "stated"})
    assert annotations_of(log) == {"a": "stated"}
    manifest(log, {})
    assert annotations_of(log) == {}


KEYS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=8))
def test_every_annotation_has_one_author(steps: list[tuple[bool, Annotations]]) -> None:
    """Compared with a model that keeps the annotations of both apart."""
    log = DeliveredResources()
    manifest(log, {})
    stated: Annotations = {}
    edited: Annotations = {}
    for is_edit, wanted in steps:
        present = stated | edited
        if is_edit:
            edit(log, wanted)
            by_manifest = {key for key in wanted if key in stated and key not in edited and wanted[key] == present[key]}
            edited = {key: value for key, value in wanted.items() if key not in by_manifest}
            stated = {key: value for key, value in wanted.items() if key in by_manifest}
        else:
            manifest(log, wanted)
            edited = {key: value for key, value in edited.items() if key not in wanted}
            stated = wanted
        assert annotations_of(log) == stated | edited

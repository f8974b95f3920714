"""The objects that an edge has seen: neither a late event nor a restored API server shows a wrong state for long."""

from __future__ import annotations

import json

import msgspec
import pytest

from projections.kubernetes.object_cache import ObjectCache, named_objects
from schemas.kubernetes.objects import Custom


def item(name: str, version: int, uid: str = "u1", nodes: int = 0) -> Custom:
    text = {
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(version)},
        "status": {"nodes": nodes},
    }
    return msgspec.json.decode(json.dumps(text), type=Custom)


def nodes_of(cache: ObjectCache[Custom]) -> dict[str, int]:
    return {name: json.loads(bytes(item.status))["nodes"] for name, item in cache.objects.items()}


def test_an_older_event_never_replaces_a_newer_answer() -> None:
    found = named_objects()
    changed: list[str] = []
    found.subscribe(lambda item: changed.append(item.metadata.name))
    found.list_began()
    found.present(item("a", 10))
    assert not found.objects and not found.is_complete, "a list counts when it is complete"
    found.list_completed(went_back=False)
    assert found.is_complete and nodes_of(found) == {"a": 0}
    found.put(item("a", 12, nodes=2))
    found.present(item("a", 11, nodes=1))
    assert nodes_of(found) == {"a": 2}
    found.forget("a", 20)
    found.present(item("a", 15, nodes=1))
    assert not found.objects, "it was deleted later"
    found.present(item("a", 21, "u2", nodes=3))
    found.deleted(item("a", 20))
    assert nodes_of(found) == {"a": 3}, "the deletion of the earlier object came late"
    assert changed == ["a"] * 4


def test_after_a_restored_backup_the_list_counts_whatever_its_versions() -> None:
    found = named_objects()
    for went_back, version in ((False, 100), (False, 90), (True, 90)):
        found.list_began()
        found.present(item("a", version, nodes=version))
        found.list_completed(went_back=went_back)
    assert nodes_of(found) == {"a": 90}
    found.list_began()
    found.list_completed(went_back=False)
    assert not found.objects


def test_an_object_that_was_created_during_a_list_is_found_again_by_the_watch_after_it() -> None:
    found = named_objects()
    found.list_began()
    found.put(item("a", 105))
    found.list_completed(went_back=False)
    assert not found.objects, "the server answered the list as of an earlier version"
    found.present(item("a", 105))
    assert set(found.objects) == {"a"}


@pytest.mark.parametrize("version", range(90, 111))
def test_after_a_restored_backup_an_object_is_found_whatever_version_it_is_created_with(version: int) -> None:
    """The server assigns the versions from before its restore again."""
    found = named_objects()
    found.put(item("a", 100))
    found.list_began()
    found.list_completed(went_back=True)
    found.present(item("a", version, "u2"))
    assert set(found.objects) == {"a"}


@pytest.mark.parametrize("version", range(90, 111))
def test_the_answer_to_a_creation_counts_although_no_list_has_shown_the_restore(version: int) -> None:
    found = named_objects()
    found.put(item("a", 100))
    found.forget("a")
    found.put(item("a", version, "u2"), sent_at=found.version("a"))
    assert set(found.objects) == {"a"}


def test_an_answer_that_a_deletion_has_overtaken_revives_no_object() -> None:
    found = named_objects()
    found.put(item("a", 100))
    sent_at = found.version("a")
    found.deleted(item("a", 101))
    found.put(item("a", 100), sent_at=sent_at)
    assert not found.objects
    found.put(item("b", 100))
    found.forget("b")
    found.present(item("b", 100))
    assert not found.objects, "the event was late"

"""The next write of an object in a cluster: what it lacks, what is ours no more, what others changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from projections.kubernetes.resources.field_ownership import changed_by, has_surplus, lacking
from projections.kubernetes.resources.live_object import LiveMetadata, LiveObject, ManagedFields
from projections.kubernetes.resources.manifests import FIELD_MANAGER, can_refer, manifest
from projections.kubernetes.resources.server_schemas import pruned, schemas_by_kind
from projections.kubernetes.resources.statuses import fitting, stamped
from projections.kubernetes.resources.writes import Goal, Restored, next_write
from projections.resources import kinds
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted

AT = ObjectId("east", kinds.DPU, "dpf", "d1")
OWNER = ObjectId("east", kinds.DPU_SET, "dpf", "all")
FINALIZER = "provisioning.dpu.nvidia.com/dpu-protection"
NOW_MS = 1_700_000_000_000


def wanted(**spec: Any) -> dict[str, Any]:
    return manifest(Wanted(AT, OWNER.key, {"bfb": "jammy", **spec}, labels={"a": "b"}), finalizers=[FINALIZER])


def owned(value: Any) -> dict[str, Any]:
    """The fields of a value, each owned."""
    return {f"f:{name}": owned(part) if isinstance(part, dict) else {} for name, part in value.items()}


def live(body: dict[str, Any], *, fields: Any = None, others: Any = None, **metadata: Any) -> LiveObject:
    """An object with the content of a manifest, which the plane applied unless `fields` says otherwise."""
    about = body["metadata"]
    if fields is None:
        mine = {"metadata": {name: about[name] for name in ("labels", "annotations")}, "spec": body.get("spec", {})}
        fields = owned(mine)
    entries = [ManagedFields(FIELD_MANAGER, "Apply", "", raw(fields))]
    entries += [ManagedFields(name, "Update", "", raw(each)) for name, each in (others or {}).items()]
    given: dict[str, Any] = {"name": "d1", "namespace": "dpf", "uid": "u1", "managed_fields": entries}
    given |= {"labels": about["labels"], "annotations": about["annotations"], "finalizers": about.get("finalizers")}
    return LiveObject(LiveMetadata(**(given | metadata)), raw(body.get("spec", {})))


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def write(goal: Goal, found: LiveObject | None, schema: Any = None) -> Any:
    return next_write(AT, goal, found, schema, NOW_MS)


def test_an_absent_object_is_applied_and_one_as_wanted_is_left() -> None:
    body = wanted()
    found = write(Goal(manifest=body), None)
    assert found.verb == "apply" and found.body == body
    assert write(Goal(manifest=body), live(body)) is None
    defaulted = {**body, "spec": {**body["spec"], "nodeEffect": {"drain": {}}}}
    assert write(Goal(manifest=body), live(defaulted, fields=owned({"spec": body["spec"]}))) is None


def test_a_field_that_is_wanted_no_more_is_given_up() -> None:
    assert write(Goal(manifest=wanted()), live(wanted(dpuFlavor="hbn"))).verb == "apply"


def test_a_changed_field_of_ours_is_restored_and_named_with_who_changed_it() -> None:
    body = wanted()
    changed = {**body, "spec": {"bfb": "other"}}
    found = live(
        changed, fields=owned({"metadata": {"labels": {"a": ""}}}), others={"kubectl": {"f:spec": {"f:bfb": {}}}}
    )
    assert write(Goal(manifest=body), found).restored == (Restored("spec.bfb", ("kubectl",)),)
    mine = live(changed, others={"kubectl": {"f:spec": {"f:dpuFlavor": {}}}})
    assert write(Goal(manifest=body), mine).restored == (), "the plane itself wants another value now"


def test_a_field_that_the_server_does_not_have_is_not_written() -> None:
    schema = {"properties": {"spec": {"type": "object", "properties": {"bfb": {"type": "string"}}}}}
    body = wanted(secureBoot=True)
    assert write(Goal(manifest=body), None, schema).body["spec"] == {"bfb": "jammy"}
    assert write(Goal(manifest=body), live(wanted()), schema) is None


def test_an_object_whose_fixed_fields_differ_is_made_again() -> None:
    """It gives up its finalizer first, so that it is gone at once: a deletion that others can see is a user's, and
    would release the DPU out of its turn."""
    goal = Goal(manifest=wanted(serialNumber="2"), finalizers=[FINALIZER])
    first = write(goal, live(wanted(serialNumber="1")))
    assert first.verb == "release" and first.body[-1] == {"op": "remove", "path": "/metadata/finalizers/0"}
    second = write(goal, live(wanted(serialNumber="1"), finalizers=[]))
    assert (second.verb, second.body) == ("delete", "u1")


def test_finalizers_are_added_to_objects_of_users_and_removed_when_nothing_remains() -> None:
    body = wanted()
    without = live(body, finalizers=["other"])
    added = write(Goal(finalizers=[FINALIZER]), without)
    assert added.verb == "apply" and added.body["metadata"]["finalizers"] == [FINALIZER]
    assert added.body["metadata"]["uid"] == "u1", "no object is created"
    deleted = live(body, finalizers=["other", FINALIZER], deletion_timestamp=datetime.now(UTC))
    assert write(Goal(finalizers=[FINALIZER]), deleted) is None
    released = write(Goal(finalizers=[FINALIZER], is_released=True), deleted)
    assert released.verb == "release"
    assert released.body[1:] == [
        {"op": "test", "path": "/metadata/finalizers/1", "value": FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


def test_an_object_that_is_over_is_deleted_once() -> None:
    assert write(Goal(is_over=True), live(wanted())).body == "u1"
    assert write(Goal(is_over=True), live(wanted(), deletion_timestamp=datetime.now(UTC))) is None


def test_a_status_is_written_when_it_differs_and_never_goes_back() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Success", "message": "", "observedGeneration": 2}
    status = {"phase": "Ready", "conditions": [ready], "observedGeneration": 2}
    found = write(Goal(status=status), live(wanted()))
    assert found.verb == "status" and found.body["status"]["conditions"][0]["lastTransitionTime"]
    base = live(wanted())
    as_written = msgspec.structs.replace(base, status=raw(stamped(status, {}, NOW_MS)))
    assert next_write(AT, Goal(status=status), as_written, None, NOW_MS + 60_000) is None
    newer = msgspec.structs.replace(base, status=raw({"observedGeneration": 3}))
    assert write(Goal(status=status), newer) is None


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    def status(value: str, message: str) -> dict[str, Any]:
        return {"conditions": [{"type": "Ready", "status": value, "message": message}]}

    first = stamped(status("False", "a"), {}, NOW_MS)
    second = stamped(status("False", "b"), first, NOW_MS + 5_000)
    third = stamped(status("True", ""), second, NOW_MS + 9_000)
    times = [each["conditions"][0]["lastTransitionTime"] for each in (first, second, third)]
    assert times[0] == times[1] != times[2]


def test_a_phase_that_an_older_definition_lacks_becomes_an_older_phase() -> None:
    phases = {"type": "string", "enum": ["OS Installing", "Ready"]}
    schema = {"properties": {"status": {"type": "object", "properties": {"phase": phases}}}}
    assert fitting({"phase": "DPU Config", "observedGeneration": 1}, schema) == {"phase": "OS Installing"}
    assert fitting({"phase": "Node Effect"}, schema) == {}
    assert fitting({"phase": "Ready"}, schema) == {"phase": "Ready"}


@pytest.mark.parametrize(
    ("wish", "present", "paths"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b"]),
        ({"a": {}}, {}, []),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, []),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"metadata": {"finalizers": ["x"]}}, {"metadata": {"finalizers": ["y", "x"]}}, []),
        ({"metadata": {"finalizers": ["x"]}}, {"metadata": {"finalizers": ["y"]}}, ["metadata.finalizers"]),
    ],
)
def test_what_is_wanted_must_be_a_part_of_what_is_there(wish: Any, present: Any, paths: list[str]) -> None:
    assert [".".join(path) for path in lacking(wish, present)] == paths


def test_fields_of_lists_are_owned_by_key_or_value() -> None:
    ports: dict[str, Any] = {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:protocol": {}}}}
    assert not has_surplus(ports, {"ports": [{"port": 80}]}), "the server added the protocol"
    assert has_surplus(ports, {"ports": [{"port": 81}]})
    finalizers: dict[str, Any] = {"f:metadata": {"f:finalizers": {'v:"x"': {}}}}
    assert not has_surplus(finalizers, {"metadata": {"finalizers": ["x", "y"]}})
    assert has_surplus(finalizers, {"metadata": {"finalizers": ["y"]}})
    assert has_surplus(finalizers, {"metadata": {}})


def test_the_owner_of_a_map_owns_its_fields() -> None:
    assert changed_by(("spec", "a", "b"), {"x": {"f:spec": {"f:a": {}}}, "y": {"f:spec": {"f:c": {}}}}) == ["x"]


def test_schemas_keep_free_fields_and_drop_unknown_ones() -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"values": free, "labels": labels, "list": {"items": {"properties": {}}}}}
    value = {"values": {"x": {"y": 1}}, "labels": {"a": "b"}, "list": [{"q": 1}], "other": 1}
    assert pruned(value, schema) == {"values": {"x": {"y": 1}}, "labels": {"a": "b"}, "list": [{}]}
    of = {"x-kubernetes-group-version-kind": [{"group": "g", "kind": "DPU", "version": "v1"}]}
    both = {"components": {"schemas": {"a": {**schema, **of}, "b": {"properties": {"items": {}}, **of}}}}
    assert schemas_by_kind(both) == {"DPU": {**schema, **of}}


def test_only_objects_of_one_namespace_refer_to_their_owner() -> None:
    assert can_refer(AT, OWNER)
    assert not can_refer(AT, OWNER._replace(namespace="other"))
    assert not can_refer(AT._replace(source="east.dpf.dpus"), OWNER)

"""What an object of a cluster shall be: wanted, stated by a user, or wanted no more, and in which order it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from projections.kubernetes.object_names import OWN_LABELS
from projections.kubernetes.resources.goals import Goals, LiveObjects
from projections.kubernetes.resources.live_object import LiveMetadata, LiveObject, ManagedFields
from projections.kubernetes.resources.manifests import FIELD_MANAGER, OWNER
from projections.kubernetes.resources.protection import FINALIZERS
from projections.kubernetes.resources.writes import next_write
from projections.resources import kinds, views
from projections.resources.conditions.world import World
from projections.resources.rollouts.rows import DpuRollout
from projections.resources.state import ObjectId, Observed, ResourcesChange, object_id
from schemas.resources.dpf.names import CONSUMED_BY, HOST_POWER_CYCLE_REQUIRED, OWNING_DEPLOYMENT
from tests.support.derivations import NAMESPACE, SOURCE, Derived, device, dpu_set, key, row

DPU_KEY = key(kinds.DPU, "h1-d1")
SET_KEY = key(kinds.DPU_SET, "all")
DEPLOYMENT_KEY = key(kinds.DPU_DEPLOYMENT, "edge")
APPLICATION_KEY = key(kinds.APPLICATION, "dpus-fw")
DPU_CLUSTER_SOURCE = f"{SOURCE}.{NAMESPACE}.dpus"


class Site:
    """A state, and the objects that exist in the clusters."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.derived = Derived(rows)
        self.live = LiveObjects()
        self.goals = Goals(SOURCE, self.live, self.world)

    def world(self) -> World:
        return World.of(self.derived.state, self.derived.derivation)

    def exists(self, key: str, *, owner: str = "", is_deleted: bool = False, **metadata: Any) -> LiveObject:
        """An object of a cluster; one with an owner is the plane's."""
        at = object_id(key)
        labels = metadata.pop("labels", {}) | (OWN_LABELS if owner else {})
        annotations = metadata.pop("annotations", {}) | ({OWNER: owner} if owner else {})
        deleted = datetime.now(UTC) if is_deleted else None
        given = {
            "uid": "u",
            "labels": labels,
            "annotations": annotations,
            "deletion_timestamp": deleted,
            "resource_version": "1",
        }
        about = LiveMetadata(at.name, at.namespace, **(given | metadata))
        found = LiveObject(about)
        cache = self.live.caches.get((at.source, at.kind)) or self.live.add(at.source, at.kind)
        cache.put(found)
        return found

    def gone(self, key: str) -> None:
        at = object_id(key)
        self.live.caches[at.source, at.kind].forget(f"{at.namespace}/{at.name}")

    def goal(self, key: str) -> Any:
        return self.goals.goal(key, self.live.get(key))


def hosts(**changes: Any) -> dict[str, Any]:
    rows = {
        key(kinds.BFB, "image"): row(),
        key(kinds.DPU_NODE, "h1"): row(),
        key(kinds.DPU_DEVICE, "d1"): device("h1"),
        SET_KEY: dpu_set(),
    }
    return rows | changes


def test_a_wanted_object_waits_for_its_owner_and_then_refers_to_it() -> None:
    site = Site(hosts())
    assert site.goal(DPU_KEY).manifest is None, "a reference to an owner needs its uid"
    site.exists(SET_KEY)
    [reference] = site.goal(DPU_KEY).manifest["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("DPUSet", "all", "u")
    site.exists(SET_KEY, is_deleted=True, resource_version="2")
    assert site.goal(DPU_KEY).manifest is None, "the API server would delete the object with its owner"


def test_an_application_is_made_once_argo_cd_knows_its_project_and_its_cluster() -> None:
    chart = {"source": {"repoURL": "oci://registry/charts", "version": "1", "chart": "fw"}}
    service, cluster = key(kinds.DPU_SERVICE, "fw"), key(kinds.DPU_CLUSTER, "dpus")
    rows = {
        key(kinds.DPF_OPERATOR_CONFIG, "config"): row(),
        cluster: row({"type": "static", "kubeconfig": "admin"}),
        service: row({"helmChart": chart}),
    }
    site = Site(rows)
    site.exists(service)
    secret, project = key(kinds.SECRET, f"{NAMESPACE}-dpus"), key(kinds.APP_PROJECT, "doca-platform-project-dpu")
    for name in (secret, project):
        assert site.goal(APPLICATION_KEY).manifest is None
        site.exists(name, owner=cluster)
        assert list(site.goals.waiting(name)) == [APPLICATION_KEY]
    assert site.goal(APPLICATION_KEY).manifest["spec"]["destination"]["name"] == "dpus"
    site.exists(APPLICATION_KEY, owner=service)
    site.gone(secret)
    assert site.goal(APPLICATION_KEY).manifest is not None, "what exists is kept up to date"
    assert list(site.goals.waiting(project)) == []


def test_a_device_that_a_search_found_is_created_once_and_is_a_users_from_then_on() -> None:
    found = row({"serialNumber": "S1"}, labels={"a": "b"}, annotations={"c": "d"})
    site = Site({key(kinds.DPU_DEVICE, "s1"): found, key(kinds.BFB, "image"): row()})
    goal = site.goal(key(kinds.DPU_DEVICE, "s1"))
    assert goal.manifest is None
    assert goal.first == {
        "apiVersion": "provisioning.dpu.nvidia.com/v1alpha1",
        "kind": "DPUDevice",
        "metadata": {
            "name": "s1",
            "namespace": NAMESPACE,
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
            "finalizers": ["provisioning.dpu.nvidia.com/dpudevice-protection"],
        },
        "spec": {"serialNumber": "S1"},
    }
    assert site.goal(key(kinds.BFB, "image")).first is None, "a user states images, and may have deleted this one"
    site.exists(key(kinds.DPU_DEVICE, "s1"))
    assert site.goal(key(kinds.DPU_DEVICE, "s1")).first is None
    site.gone(key(kinds.DPU_DEVICE, "s1"))
    site.derived.apply({key(kinds.DPU_DEVICE, "s1"): replace(found, is_external=True)})
    assert site.goal(key(kinds.DPU_DEVICE, "s1")).first is None, "the cluster had it, and a user has deleted it"


def test_a_power_cycle_of_the_host_is_asked_for_until_the_reboot_of_each_installation() -> None:
    spec = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}
    template = {"spec": spec, "annotations": {HOST_POWER_CYCLE_REQUIRED: "true", "example.org/kept": "yes"}}
    site = Site(hosts() | {SET_KEY: dpu_set(dpuTemplate=template)})
    site.exists(SET_KEY)
    phases = (
        "",
        "Pending",
        "Rebooting",
        "DPU Cluster Config",
        "Ready",
        "Node Effect",
        "Rebooting",
        "Node Effect Removal",
    )
    asked = []
    for phase in phases:
        seen = json.dumps({"ready": phase == "Ready", "phase": phase})
        site.derived.state.observe({DPU_KEY: Observed("", seen, "zone", 1, 0)})
        annotations = site.goal(DPU_KEY).manifest["metadata"]["annotations"]
        shown = views.view(DPU_KEY, site.world())
        assert annotations["example.org/kept"] == "yes" and shown is not None
        assert (HOST_POWER_CYCLE_REQUIRED in shown.row.annotations) == (HOST_POWER_CYCLE_REQUIRED in annotations)
        asked.append(HOST_POWER_CYCLE_REQUIRED in annotations)
    assert asked == [True, True, True, False, False, True, True, False]


def test_an_object_that_nothing_wants_is_deleted_once_the_fold_knows_the_cluster() -> None:
    site = Site({})
    site.exists(DPU_KEY, owner=SET_KEY)
    site.goals.may_delete = lambda: False
    assert not site.goal(DPU_KEY).is_over
    site.goals.may_delete = lambda: True
    assert site.goal(DPU_KEY).is_over
    site.exists(key(kinds.DPU, "theirs"))
    assert not site.goal(key(kinds.DPU, "theirs")).is_over
    other = ObjectId("west", kinds.DPU_SET, NAMESPACE, "all").key
    shared = ObjectId(DPU_CLUSTER_SOURCE, kinds.SERVICE_CHAIN_SET, NAMESPACE, "edge").key
    site.exists(shared, owner=other)
    assert not site.goal(shared).is_over, "another plane wrote it"


def test_a_finalizer_goes_when_nothing_is_left() -> None:
    site = Site(hosts() | {SET_KEY: dpu_set(deleted_ms=5)})
    site.exists(SET_KEY, is_deleted=True)
    site.exists(DPU_KEY, owner=SET_KEY, is_deleted=True)
    site.derived.state.observe({DPU_KEY: Observed("", '{"ready": false, "phase": "OS Installing"}', "zone", 1, 0)})
    assert not site.goal(SET_KEY).is_released and not site.goal(DPU_KEY).is_released
    site.derived.state.observe({DPU_KEY: None})
    assert site.goal(DPU_KEY).is_released
    site.gone(DPU_KEY)
    assert site.goal(SET_KEY).is_released
    site.exists(key(kinds.BFB, "image"), is_deleted=True)
    assert not site.goal(key(kinds.BFB, "image")).is_released, "the set refers to it"
    site.derived.apply({SET_KEY: None})
    assert site.goal(key(kinds.BFB, "image")).is_released


def test_what_was_made_from_an_object_is_not_read_while_the_object_stays() -> None:
    """A DPUSet may have all DPUs of a fleet, and is checked again and again."""

    class Unread(dict[str, None]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("read")

    site = Site(hosts() | {SET_KEY: dpu_set()})
    site.live.dependents[SET_KEY] = Unread()
    site.exists(SET_KEY)
    assert not site.goal(SET_KEY).is_released
    site.exists(SET_KEY, is_deleted=True, resource_version="2")
    with pytest.raises(AssertionError, match="read"):
        site.goal(SET_KEY)


def test_a_namespace_outlives_what_wanted_it_and_holds_up_nothing() -> None:
    service = key(kinds.DPU_SERVICE, "fw")
    site = Site({service: row({}, deleted_ms=5)})
    namespace = ObjectId(DPU_CLUSTER_SOURCE, kinds.NAMESPACE, "", NAMESPACE).key
    site.exists(service, is_deleted=True)
    site.exists(namespace, owner=service)
    assert not site.goal(namespace).is_over
    assert site.goal(service).is_released


def test_a_wanted_object_that_its_user_deletes_is_released_to_be_made_again() -> None:
    site = Site(hosts())
    site.exists(SET_KEY)
    site.exists(DPU_KEY, owner=SET_KEY, is_deleted=True)
    site.derived.state.observe({DPU_KEY: Observed("", '{"ready": true, "phase": "Ready"}', "zone", 1, 0)})
    assert site.goal(DPU_KEY).is_released


def test_a_deleted_dpu_with_a_plan_is_kept_until_the_fold_knows_its_deletion() -> None:
    site = Site(hosts())
    site.exists(SET_KEY)
    site.exists(DPU_KEY, owner=SET_KEY, is_deleted=True, uid="mine")
    state, planned = site.derived.state, DpuRollout(SET_KEY, "two/1", "one/1")
    for known, is_released in (("", False), ("another", False), ("mine", True)):
        state.evolve(ResourcesChange(dpu_rollouts={DPU_KEY: replace(planned, deleted_uid=known)}))
        assert site.goal(DPU_KEY).is_released == is_released


def test_an_interface_of_a_user_names_the_oldest_service_that_uses_it() -> None:
    """As DPF's annotation does. An interface of the plane has it in its manifest."""
    interface, service = key(kinds.DPU_SERVICE_INTERFACE, "up"), key(kinds.DPU_SERVICE, "fw")
    late, using = key(kinds.DPU_SERVICE, "late"), {"interfaces": ["up"]}
    users = {service: row(using), late: row(using, created_ms=9)}
    site = Site({interface: row({}), **users})
    live = site.exists(interface)
    goal = site.goal(interface)
    assert goal.annotations == {CONSUMED_BY: "fw"}
    written = next_write(object_id(interface), goal, live, None, 1)
    assert written is not None and written.body["metadata"]["annotations"] == {CONSUMED_BY: "fw"}
    site.derived.apply(dict.fromkeys(users))
    mine: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{CONSUMED_BY}": {}}}}
    entry = ManagedFields(FIELD_MANAGER, "Apply", "", msgspec.Raw(json.dumps(mine).encode()))
    finalizers = list(FINALIZERS[kinds.DPU_SERVICE_INTERFACE])
    about: dict[str, Any] = {"annotations": {CONSUMED_BY: "fw"}, "finalizers": finalizers}
    live = site.exists(interface, managed_fields=[entry], **about)
    removed = next_write(object_id(interface), site.goal(interface), live, None, 1)
    assert removed is not None and "annotations" not in removed.body["metadata"]
    gone = site.exists(interface, **(about | {"annotations": {"mine": "x"}}))
    assert next_write(object_id(interface), site.goal(interface)._replace(status=None), gone, None, 1) is None
    assert site.goals.goal(interface, site.exists(interface, owner=DEPLOYMENT_KEY)).annotations is None


def test_children_of_a_deleted_deployment_leave_one_kind_after_the_other() -> None:
    site = Site({DEPLOYMENT_KEY: row({"dpus": {}}, deleted_ms=5)})
    children = [
        key(kind, "edge-x")
        for kind in (kinds.DPU_SERVICE_CHAIN, kinds.DPU_SERVICE_INTERFACE, kinds.DPU_SERVICE, kinds.DPU_SET)
    ]
    for child in children:
        site.exists(child, owner=DEPLOYMENT_KEY, labels={OWNING_DEPLOYMENT: f"{NAMESPACE}_edge"})
    while children:
        assert [child for child in children if site.goal(child).is_over] == children[:1]
        site.gone(children.pop(0))


def test_argo_cd_keeps_the_project_and_the_cluster_until_its_applications_are_gone() -> None:
    site = Site({})
    service, cluster = key(kinds.DPU_SERVICE, "fw"), key(kinds.DPU_CLUSTER, "dpus")
    site.exists(APPLICATION_KEY, owner=service, is_deleted=True)
    secret, plane = key(kinds.SECRET, "dpus"), key(kinds.TENANT_CONTROL_PLANE, "dpus")
    site.exists(secret, owner=cluster)
    site.exists(plane, owner=cluster)
    assert not site.goal(secret).is_over and not site.goal(plane).is_over
    assert set(site.goals.after(APPLICATION_KEY)) >= {secret, plane}
    site.gone(APPLICATION_KEY)
    assert site.goal(secret).is_over and site.goal(plane).is_over


def test_a_status_is_written_once_the_fold_knows_the_object() -> None:
    site = Site(hosts())
    site.exists(SET_KEY, uid="another")
    assert site.goal(SET_KEY).status is None, "the fold knows an earlier object of this name"
    site.exists(SET_KEY, resource_version="2")
    status = site.goal(SET_KEY).status
    assert status["dpuStatistics"] == {"Initializing": 1} and status["conditions"][0]["type"] == "Ready"


def test_an_object_that_waits_to_be_deleted_says_for_what() -> None:
    site = Site(hosts() | {SET_KEY: dpu_set(deleted_ms=5)})
    site.exists(SET_KEY, is_deleted=True)
    site.exists(DPU_KEY, owner=SET_KEY)
    ready = site.goal(SET_KEY).status["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("False", "AwaitingDeletion")
    assert "waits until DPU dpf/h1-d1 is deleted" in ready["message"]


def test_the_content_of_a_live_object_is_read_from_its_json() -> None:
    text = b'{"metadata": {"name": "s", "finalizers": ["x"]}, "data": {"a": "YQ=="}, "type": "Opaque", "more": 1}'
    found = msgspec.json.decode(text, type=LiveObject)
    assert found.document()["data"] == {"a": "YQ=="} and found.document()["metadata"]["finalizers"] == ["x"]
    assert found.status_document() == {} and found.managed("dpuplane") == {}

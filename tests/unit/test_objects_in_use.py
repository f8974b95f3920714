"""Objects that are deleted while others use them: they are kept until nothing uses them, and say what does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from projections.resources import kinds
from projections.resources.clusters import selected_clusters
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.condition import BLAMES_MAX
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.references import REFERENCES
from projections.resources.rollouts.allocating import propose
from projections.resources.state import ObjectId, ResourcesState
from schemas.resources.dpf import KINDS
from schemas.resources.validation import schema_of
from tests.support.resources import LOCAL, NAMESPACE, DeliveredResources
from tests.support.rollouts import RollingFleet, key_of

CLUSTER = key_of(kinds.DPU_CLUSTER, "c1")


def in_clusters(dpus: int) -> RollingFleet:
    """Installed DPUs that are allocated to cluster `c1`, with an empty cluster `c2` beside it."""
    fleet = RollingFleet(dpus)
    for name in ("c1", "c2"):
        fleet.log.apply(kinds.DPU_CLUSTER, name, json.dumps({"type": "static", "kubeconfig": name}))
        fleet.log.observe(kinds.DPU_CLUSTER, name, '{"ready":true}')
    fleet.apply_set()
    fleet.settle()
    for number in range(dpus):
        assert fleet.allocate(f"h{number:02}-d{number:02}", "c1").code == "done"
    return fleet


def world_of(state: ResourcesState) -> World:
    derivation = Derivation()
    derivation.update(state, state.objects.rows)
    return World.of(state, derivation)


def leave(fleet: RollingFleet, number: int) -> None:
    """A DPU is removed from its set and from its zone, and gives its place back."""
    name = f"{number:02}"
    fleet.log.delete(kinds.DPU_DEVICE, f"d{name}")
    fleet.plan()
    fleet.log.observe(kinds.DPU, f"h{name}-d{name}", "")
    assert fleet.allocate(f"h{name}-d{name}", "").code == "done"


def test_a_dpu_cluster_is_kept_until_its_last_dpu_is_gone() -> None:
    fleet = in_clusters(2)
    fleet.log.delete(kinds.DPU_CLUSTER, "c1")
    row = fleet.log.row(kinds.DPU_CLUSTER, "c1")
    assert row is not None and row.deleted_ms
    ready = conditions_of(CLUSTER, world_of(fleet.log.state))[0]
    assert (ready.status, ready.reason) == ("False", "AwaitingDeletion")
    first, second = (f"DPUCluster dpf/c1 is in use by DPU dpf/h{name}-d{name}" for name in ("00", "01"))
    assert ready.message == f"{first}; {second}"
    assert selected_clusters(fleet.log.state, LOCAL, None) == [CLUSTER, key_of(kinds.DPU_CLUSTER, "c2")]
    leave(fleet, 0)
    assert fleet.log.row(kinds.DPU_CLUSTER, "c1") is not None
    leave(fleet, 1)
    assert fleet.log.row(kinds.DPU_CLUSTER, "c1") is None


def test_a_dpu_cluster_with_many_dpus_names_some_and_counts_the_others() -> None:
    fleet = in_clusters(BLAMES_MAX + 5)
    fleet.log.delete(kinds.DPU_CLUSTER, "c1")
    ready = conditions_of(CLUSTER, world_of(fleet.log.state))[0]
    assert ready.message.endswith(f"; and {BLAMES_MAX + 2} more")


def test_what_serves_a_dpu_cluster_stays_until_its_dpus_are_gone() -> None:
    fleet = in_clusters(1)
    pool = {"ipv4Subnet": {"subnet": "10.0.0.0/16", "gateway": "10.0.0.1", "perNodeIPCount": 8}}
    fleet.log.apply(kinds.DPU_SERVICE_IPAM, "pool", json.dumps(pool))
    fleet.plan()
    before = sorted(fleet.live.derivation.in_clusters.claims.winners)
    assert any(key.startswith("local.dpf.c1/") for key in before)
    fleet.log.delete(kinds.DPU_CLUSTER, "c1")
    fleet.plan()
    assert sorted(fleet.live.derivation.in_clusters.claims.winners) == before
    leave(fleet, 0)
    fleet.plan()
    after = fleet.live.derivation.in_clusters.claims.winners
    assert sorted(after) == [key for key in before if ".c1" not in key]


def test_a_cluster_of_kubernetes_changes_when_its_last_dpu_leaves() -> None:
    """The API server removes it: the plane only has to give up its finalizer, so the object must be checked again."""
    fleet = in_clusters(2)
    revision = fleet.log.state.journal.revision
    leave(fleet, 0)
    assert CLUSTER not in (fleet.log.state.journal.since(revision) or ())
    leave(fleet, 1)
    assert CLUSTER in (fleet.log.state.journal.since(revision) or ())


def test_a_dpu_moves_from_a_cluster_in_deletion_only_before_anything_is_observed_of_it() -> None:
    fleet = in_clusters(1)
    fleet.add_host(1)
    fleet.plan()
    assert fleet.allocate("h01-d01", "c1").code == "done"
    fleet.log.delete(kinds.DPU_CLUSTER, "c1")
    fleet.plan()
    dpus = [fleet.dpu_key(0), fleet.dpu_key(1)]
    found = propose(fleet.log.state, fleet.live.derivation, dpus)
    assert found.clusters == {fleet.dpu_key(1): key_of(kinds.DPU_CLUSTER, "c2")}
    assert fleet.allocate("h00-d00", "c2").code == "unchanged"
    assert fleet.allocate("h01-d01", "c2").code == "done"
    assert [*fleet.log.state.users(CLUSTER)] == [fleet.dpu_key(0)]


def test_an_image_is_kept_while_a_rollback_pins_it() -> None:
    fleet = RollingFleet(1)
    for image in ("one", "two"):
        fleet.apply_set(image)
        fleet.settle()
    fleet.request("undo")
    fleet.log.delete(kinds.BFB, "one")
    assert fleet.log.row(kinds.BFB, "one") is not None
    assert [*fleet.log.state.users(key_of(kinds.BFB, "one"))] == [key_of(kinds.DPU_SET, "set")]
    fleet.apply_set("three")
    fleet.plan()
    assert fleet.log.row(kinds.BFB, "one") is None


def test_a_rollback_that_ends_in_the_deletion_of_its_set_gives_the_image_back() -> None:
    fleet = RollingFleet(1)
    for image in ("one", "two"):
        fleet.apply_set(image)
        fleet.settle()
    fleet.request("undo")
    fleet.log.delete(kinds.BFB, "one")
    fleet.log.delete(kinds.DPU_SET, "set")
    fleet.plan()
    fleet.log.observe(kinds.DPU, "h00-d00", "")
    fleet.plan()
    assert fleet.log.row(kinds.BFB, "one") is None


def test_the_users_of_objects_are_the_same_after_a_restart() -> None:
    fleet = in_clusters(2)
    fleet.apply_set("two")
    fleet.settle()
    fleet.request("undo")
    state = fleet.log.state
    targets = (CLUSTER, key_of(kinds.BFB, "one"), key_of(kinds.BFB, "two"))
    before = [sorted(state.users(key)) for key in targets]
    assert all(before)
    state.rederive()
    assert [sorted(state.users(key)) for key in targets] == before


@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        ({"name": "absent"}, "DPUCluster dpf/absent does not exist"),
        ({"name": "deleted"}, "DPUCluster dpf/deleted is being deleted"),
        ({"name": "unready"}, "DPUCluster dpf/unready is not ready"),
        ({"name": "full"}, "DPUCluster dpf/full has 1 DPUs, its maximum"),
        ({"name": "changed", "position": 0}, "DPUCluster dpf/changed has changed at"),
    ],
)
def test_an_allocation_that_must_not_be_is_refused(setup: Mapping[str, Any], sentence: str) -> None:
    fleet = RollingFleet(3)
    fleet.apply_set()
    fleet.settle()
    for name in ("deleted", "unready", "full", "changed"):
        fleet.log.apply(kinds.DPU_CLUSTER, name, json.dumps({"type": "static", "maxNodes": 1}))
        if name != "unready":
            fleet.log.observe(kinds.DPU_CLUSTER, name, '{"ready":true}')
    assert fleet.allocate("h01-d01", "full").code == fleet.allocate("h02-d02", "deleted").code == "done"
    fleet.log.delete(kinds.DPU_CLUSTER, "deleted")
    outcome = fleet.allocate("h00-d00", setup["name"], setup.get("position"))
    assert outcome.code == "refused" and sentence in outcome.reason
    assert fleet.dpu_key(0) not in fleet.log.state.allocations.rows


def test_a_dpu_that_still_exists_does_not_give_its_place_back() -> None:
    fleet = in_clusters(1)
    outcome = fleet.allocate("h00-d00", "")
    assert outcome.code == "refused" and "still exists" in outcome.reason


@pytest.mark.parametrize(
    ("clusters", "allocated", "status", "message"),
    [
        ({"c1": {}}, "", "Unknown", "DPU dpf/h00-d00 joins a DPU cluster"),
        ({"c1": {}}, "c1", "True", ""),
        ({"c1": {"labels": {"tier": "b"}}}, "", "False", "no DPUCluster matches its selector"),
        ({"c1": {"ready": False}}, "", "False", "DPUCluster dpf/c1 is not ready"),
        ({"c1": {"ready": False}, "c2": {"ready": False}}, "", "False", "dpf/c1 is not ready, nor 1 more"),
        ({"c1": {"other": True}}, "", "False", "every DPUCluster that it may join has its maximum of DPUs: c1"),
        ({"c1": {"other": True, "deleted": True}}, "", "False", "DPUCluster dpf/c1 is being deleted"),
    ],
)
def test_a_dpu_says_why_it_is_in_no_dpu_cluster(
    clusters: dict[str, dict[str, Any]], allocated: str, status: str, message: str
) -> None:
    fleet = RollingFleet(2)
    fleet.apply_set(cluster={"selector": {"matchLabels": {"tier": "a"}}})
    fleet.plan()
    for name, how in clusters.items():
        spec, labels = json.dumps({"type": "static", "maxNodes": 1}), [how.get("labels", {"tier": "a"})]
        fleet.log.apply(kinds.DPU_CLUSTER, name, spec, labels=labels)
        fleet.log.observe(kinds.DPU_CLUSTER, name, json.dumps({"ready": how.get("ready", True)}))
        if how.get("other"):
            assert fleet.allocate("h01-d01", name).code == "done"
        if how.get("deleted"):
            fleet.log.delete(kinds.DPU_CLUSTER, name)
    if allocated:
        assert fleet.allocate("h00-d00", allocated).code == "done"
    found = conditions_of(fleet.dpu_key(0), world_of(fleet.log.state))
    ready = next(each for each in found if each.type == "DPUClusterReady")
    assert ready.status == status and ready.message.endswith(message), ready


def test_a_dpu_of_an_installation_without_dpu_clusters_waits_for_none() -> None:
    fleet = RollingFleet(1)
    fleet.apply_set()
    found = conditions_of(fleet.dpu_key(0), world_of(fleet.log.state))
    assert "DPUClusterReady" not in {each.type for each in found}


# -- every reference

HELD, SAYS = "held", "says"
FIELDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "DPUSet": {
        "dpuTemplate.spec.bfb.name": (kinds.BFB, HELD),
        "dpuTemplate.spec.blueFieldSoftware.name": (kinds.BLUEFIELD_SOFTWARE, HELD),
        "dpuTemplate.spec.dpuFlavor": (kinds.DPU_FLAVOR, HELD),
        "dpuTemplate.spec.dpuFlavorTemplate": (kinds.DPU_FLAVOR_TEMPLATE, HELD),
    },
    "DPU": {
        "bfb": (kinds.BFB, HELD),
        "blueFieldSoftware": (kinds.BLUEFIELD_SOFTWARE, HELD),
        "dpuFlavor": (kinds.DPU_FLAVOR, HELD),
        "cluster.name": (kinds.DPU_CLUSTER, HELD),
        "nodeName": (kinds.NODE, "the DPU leaves with its host"),
        "dpuNodeName": (kinds.DPU_NODE, "the DPU leaves with its host"),
        "dpuDeviceName": (kinds.DPU_DEVICE, "the DPU leaves with its device"),
    },
    "DPUDeployment": {
        "dpus.bfb": (kinds.BFB, HELD),
        "dpus.blueFieldSoftware": (kinds.BLUEFIELD_SOFTWARE, HELD),
        "dpus.flavor": (kinds.DPU_FLAVOR, HELD),
        "dpus.flavorTemplate": (kinds.DPU_FLAVOR_TEMPLATE, HELD),
        "services.x.serviceTemplate": (kinds.DPU_SERVICE_TEMPLATE, HELD),
        "services.x.serviceConfiguration": (kinds.DPU_SERVICE_CONFIGURATION, HELD),
    },
    "DPUNode": {"dpus.0.name": (kinds.DPU_DEVICE, SAYS)},
    "DPUNodeMaintenance": {"dpuNodeName": (kinds.DPU_NODE, "the plane makes it, and removes it with its DPUs")},
    "DPUService": {"interfaces.0": (kinds.DPU_SERVICE_INTERFACE, SAYS)},
    "DPUServiceCredentialRequest": {"targetCluster.name": (kinds.DPU_CLUSTER, SAYS)},
}
"""Every field that names an object of DPF, by kind, with what happens when that object is deleted."""

_NAMING = re.compile(
    r"(^|\.)(bfb|blueFieldSoftware|dpuFlavor|flavor|dpuFlavorTemplate|flavorTemplate|serviceTemplate"
    r"|serviceConfiguration|cluster|targetCluster|dpus\.0|interfaces)(\.name|\.0)?$|(^|\.)(n|dpuN)odeName$"
    r"|(^|\.)dpuDeviceName$"
)


def test_every_field_that_names_an_object_is_known() -> None:
    found = {
        (kind.name, path)
        for kind in KINDS
        for path in _texts(schema_of(kind)["properties"]["spec"], "")
        if _NAMING.search(path)
    }
    assert found == {(kind, path) for kind, fields in FIELDS.items() for path in fields}
    held = {(kind, target) for kind, fields in FIELDS.items() for target, what in fields.values() if what == HELD}
    assert held == {(kind.split(".")[0], target) for kind, paths in REFERENCES.items() for _, target in paths}


@pytest.mark.parametrize(
    ("kind", "path", "target", "what"),
    [(kind, path, *how) for kind, fields in FIELDS.items() for path, how in fields.items() if how[1] in (HELD, SAYS)],
)
def test_a_deleted_object_is_kept_or_its_referrer_says_what_it_lacks(
    kind: str, path: str, target: str, what: str
) -> None:
    log = DeliveredResources()
    log.apply(target, "named", "{}")
    full = next(f"{each.name}.{each.group}" for each in KINDS if each.name == kind)
    spec = _spec(path.split("."))
    for part in ("cluster", "targetCluster"):
        if part in spec:
            spec[part]["namespace"] = NAMESPACE
    log.apply(full, "user", json.dumps(spec))
    log.delete(target, "named")
    named, user = ObjectId(LOCAL, target, NAMESPACE, "named"), ObjectId(LOCAL, full, NAMESPACE, "user")
    if what == SAYS:
        assert log.row(target, "named") is None
        assert named.key in [
            each.key for found in conditions_of(user.key, world_of(log.state)) for each in found.blames
        ]
        return
    row = log.row(target, "named")
    assert row is not None and row.deleted_ms
    assert [*log.state.users(named.key)] == [user.key]
    log.delete(full, "user")
    assert log.row(target, "named") is None


def _spec(path: list[str]) -> Any:
    """A spec with a name at this path."""
    if not path:
        return "named"
    inner = _spec(path[1:])
    return [inner] if path[0] == "0" else {path[0]: inner}


def _texts(schema: Any, path: str) -> Iterator[str]:
    """The paths of all texts of a schema; `0` stands for each entry of a list, and `x` for each of a mapping."""
    joined = f"{path}." if path else ""
    for name, part in schema.get("properties", {}).items():
        yield from _texts(part, joined + name)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _texts(schema["additionalProperties"], f"{joined}x")
    if "items" in schema:
        yield from _texts(schema["items"], f"{joined}0")
    if schema.get("type") == "string":
        yield path

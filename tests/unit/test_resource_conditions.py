"""Conditions of objects, and the chain of causes down to the object that is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from projections.resources.conditions.causes import blocked_by, conditions_of
from projections.resources.conditions.condition import BLAMES_MAX, Condition
from projections.resources.conditions.world import World
from projections.resources.kinds import (
    BFB,
    DPU,
    DPU_CLUSTER,
    DPU_DEPLOYMENT,
    DPU_DEVICE,
    DPU_FLAVOR,
    DPU_NODE,
    DPU_SERVICE,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_CREDENTIAL_REQUEST,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_IPAM,
    DPU_SERVICE_TEMPLATE,
    DPU_SET,
)
from projections.resources.observation import Observation
from projections.resources.state import Resource
from schemas.resources.dpf.names import OWNING_DEPLOYMENT
from tests.support.deployments import deployed, parts
from tests.support.derivations import Derived, device, dpu_set, key, row

READY = Observation(is_ready=True)


def world(derived: Derived, **observed: Observation) -> World:
    """The world of a derivation in which these objects are observed, by kind and name as `BFB_image`."""
    by_kind = {"BFB": BFB, "DPU": DPU, "DPUCluster": DPU_CLUSTER, "Set": DPU_SET}
    found = {}
    for name, seen in observed.items():
        kind, _, short = name.partition("_")
        found[key(by_kind[kind], short.replace("_", "-"))] = seen
    return World(derived.state, derived.derivation, found)


def one(found: tuple[Condition, ...], aspect: str = "Ready") -> Condition:
    return next(each for each in found if each.type == aspect)


def fleet(**objects: Resource | None) -> Derived:
    """A host with one device, an image, a flavor and a DPUSet `new`; `objects` replace those of the same name."""
    rows: dict[str, Resource | None] = {
        key(BFB, "image"): row(),
        key(DPU_FLAVOR, "flavor"): row(),
        key(DPU_NODE, "a"): row(),
        key(DPU_DEVICE, "d0"): device("a"),
        key(DPU_SET, "new"): dpu_set(created_ms=5),
    }
    kinds = {"image": BFB, "flavor": DPU_FLAVOR, "a": DPU_NODE, "b": DPU_NODE, "d0": DPU_DEVICE}
    rows |= {key(kinds.get(name, DPU_SET), name): found for name, found in objects.items()}
    return Derived({name: found for name, found in rows.items() if found is not None})


def chain(key_: str, seen: World) -> list[str]:
    """The chain of causes as lines, indented by depth; a star marks the objects that are to blame."""
    return [f"{'  ' * (each.depth - 1)}{each.message}{' *' if each.is_root else ''}" for each in blocked_by(key_, seen)]


def test_a_set_whose_image_does_not_exist_blames_it() -> None:
    found = conditions_of(key(DPU_SET, "new"), world(fleet(image=None)))
    reconciled = one(found, "DPUSetPrereqsReconciled")
    assert (reconciled.status, reconciled.reason, reconciled.message) == (
        "False",
        "Pending",
        "BFB dpf/image does not exist",
    )
    assert one(found).message.startswith("The following conditions are not ready: DPUSetPrereqsReconciled")


def test_everything_is_ready_once_it_is_observed_ready() -> None:
    seen = world(fleet(), BFB_image=READY, DPU_a_d0=READY)
    for each in (key(DPU_SET, "new"), key(DPU, "a-d0"), key(DPU_NODE, "a"), key(DPU_DEVICE, "d0"), key(BFB, "image")):
        assert one(conditions_of(each, seen)).status == "True"
        assert blocked_by(each, seen) == []


def test_a_download_that_failed_is_the_cause_of_an_unready_set() -> None:
    failed = Observation(is_ready=False, phase="Error", message="the server answered 404")
    seen = world(fleet(), BFB_image=failed)
    assert chain(key(DPU_SET, "new"), seen) == [
        "BFB dpf/image is in phase Error: the server answered 404 *",
        "DPU dpf/a-d0 has not been provisioned yet (the DPU's zone reports it)",
        "  BFB dpf/image is in phase Error: the server answered 404 *",
    ]
    assert (
        one(conditions_of(key(DPU, "a-d0"), seen)).message == "BFB dpf/image is in phase Error: the server answered 404"
    )


def test_a_device_of_an_older_set_is_named_with_both_sets() -> None:
    seen = world(fleet(old=dpu_set(created_ms=4)), BFB_image=READY, DPU_a_d0=READY)
    found = one(conditions_of(key(DPU_SET, "new"), seen), "DPUSetPrereqsReconciled")
    assert found.reason == "Error"
    assert found.message == "DPUDevice dpf/d0 belongs to DPUSet dpf/old, which is older than DPUSet dpf/new"
    assert one(conditions_of(key(DPU_SET, "old"), seen)).holds


def test_a_set_with_a_fault_in_its_selector_says_so() -> None:
    wrong = dpu_set(dpuNodeSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]})
    found = one(conditions_of(key(DPU_SET, "new"), world(fleet(new=wrong))))
    assert "DPUSet dpf/new selects nothing, because its spec has a fault: dpuNodeSelector.matchExpr" in found.message


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"a": None}, "DPUNode dpf/a does not exist"),
        ({"a": row(deleted_ms=3)}, "DPUNode dpf/a is being deleted"),
        (
            {"d0": row()},
            "no DPUNode lists DPUDevice dpf/d0, and it has no label provisioning.dpu.nvidia.com/dpunode-name",
        ),
    ],
)
def test_a_device_without_a_host_says_why(objects: dict[str, Any], message: str) -> None:
    found = one(conditions_of(key(DPU_DEVICE, "d0"), world(fleet(**objects))), "NodeAttached")
    assert found.message == message


def test_devices_with_one_serial_number_blame_each_other() -> None:
    derived = fleet()
    derived.apply({key(DPU_DEVICE, "d1"): device("a", serial="t")})
    assert one(conditions_of(key(DPU_DEVICE, "d0"), world(derived))).holds
    derived.apply({key(DPU_DEVICE, "d1"): device("a")})
    found = one(conditions_of(key(DPU_DEVICE, "d0"), world(derived)), "SerialNumberUnique")
    assert (found.reason, found.message) == ("Error", "DPUDevice dpf/d1 has the serial number of DPUDevice dpf/d0")
    derived.apply({key(DPU_DEVICE, "d1"): None})
    assert one(conditions_of(key(DPU_DEVICE, "d0"), world(derived))).holds


def test_devices_without_a_serial_number_are_not_one_card() -> None:
    derived = fleet(d0=device("a", serial=""))
    derived.apply({key(DPU_DEVICE, "d1"): device("a", serial="")})
    assert one(conditions_of(key(DPU_DEVICE, "d0"), world(derived))).holds


def test_a_serial_number_of_a_whole_fleet_names_a_few_devices_and_counts_the_others() -> None:
    derived = fleet()
    derived.apply({key(DPU_DEVICE, f"e{number:03}"): device("a") for number in range(100)})
    found = one(conditions_of(key(DPU_DEVICE, "d0"), world(derived)), "SerialNumberUnique")
    assert len(found.blames) == BLAMES_MAX and found.more == 100 - BLAMES_MAX
    assert found.message.endswith("has the serial number of DPUDevice dpf/d0; and 97 more")


def test_a_host_blames_listed_devices_that_do_not_exist() -> None:
    found = one(conditions_of(key(DPU_NODE, "a"), world(fleet(a=row({"dpus": [{"name": "d1"}]})), DPU_a_d0=READY)))
    assert (found.reason, found.message) == ("Error", "DPUDevice dpf/d1 does not exist")


LISTED = {"dpus": [{"name": "d0"}]}


@pytest.mark.parametrize(
    ("objects", "blamed", "message"),
    [
        ({"a": row({"dpus": [{"name": "d1"}]})}, (DPU_DEVICE, "d1"), "DPUDevice dpf/d1 does not exist"),
        (
            {"a": row({"dpus": [{"name": "d0"}] * 3})},
            (DPU_NODE, "a"),
            "DPUNode dpf/a lists DPUDevice dpf/d0 3 times",
        ),
        (
            {"a": row(LISTED), "d0": device("b"), "b": row()},
            (DPU_NODE, "b"),
            "DPUDevice dpf/d0 belongs to DPUNode dpf/b, not to DPUNode dpf/a",
        ),
        (
            {"a": row(LISTED), "d0": device("b")},
            (DPU_NODE, "b"),
            "DPUDevice dpf/d0 belongs to DPUNode dpf/b, not to DPUNode dpf/a",
        ),
        (
            {"a": row(LISTED, created_ms=2), "d0": row(), "b": row(LISTED)},
            (DPU_NODE, "b"),
            "DPUDevice dpf/d0 belongs to DPUNode dpf/b, not to DPUNode dpf/a",
        ),
    ],
)
def test_a_host_says_which_listed_devices_are_not_its_own(
    objects: dict[str, Any], blamed: tuple[str, str], message: str
) -> None:
    seen = world(fleet(**objects), DPU_a_d0=READY, DPU_b_d0=READY)
    found = one(conditions_of(key(DPU_NODE, "a"), seen), "InvalidDPUDetails")
    assert (found.status, found.reason, found.message) == ("True", "Error", message)
    assert [each.key for each in found.blames] == [key(*blamed)]
    assert one(conditions_of(key(DPU_NODE, "a"), seen)).status == "False"


@pytest.mark.parametrize("host", [row(), row(LISTED), row({"dpus": 1})])
def test_a_host_that_lists_its_own_devices_has_no_invalid_details(host: Resource) -> None:
    seen = world(fleet(a=host), DPU_a_d0=READY)
    found = one(conditions_of(key(DPU_NODE, "a"), seen), "InvalidDPUDetails")
    assert (found.status, found.reason) == ("False", "Success")
    assert one(conditions_of(key(DPU_NODE, "a"), seen)).holds


def test_messages_name_three_objects_and_count_the_others() -> None:
    derived = fleet(image=row())
    derived.apply({key(DPU_DEVICE, f"d{number}"): device("a") for number in range(1, 6)})
    found = one(conditions_of(key(DPU_SET, "new"), world(derived, BFB_image=READY)))
    assert found.message.endswith("DPU dpf/a-d2 has not been provisioned yet (the DPU's zone reports it); and 3 more")
    assert len(found.blames) == 6


def test_a_deployment_leads_down_to_the_object_that_is_to_blame() -> None:
    derived = deployed()
    seen = world(derived)
    found = conditions_of(key(DPU_DEPLOYMENT, "dep"), seen)
    assert one(found, "DPUSetsReconciled").holds
    assert one(found, "DPUSetsReady").message == "DPUSet dpf/dep-all waits for BFB dpf/image and 1 more"
    lines = chain(key(DPU_DEPLOYMENT, "dep"), seen)
    assert lines[:2] == [
        "DPUSet dpf/dep-all waits for BFB dpf/image and 1 more",
        "  BFB dpf/image has not been downloaded yet (a provisioner with --images-dir reports it) *",
    ]
    services = one(conditions_of(key(DPU_DEPLOYMENT, "dep"), world(deployed())), "DPUServicesReady").message
    assert " is not ready: no DPUCluster exists that DPUService dpf/" in services
    roots = {each.key for each in blocked_by(key(DPU_DEPLOYMENT, "dep"), seen) if each.is_root}
    assert key(BFB, "image") in roots


def test_a_deployment_without_a_template_waits_for_it_alone() -> None:
    derived = deployed()
    derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): None})
    found = conditions_of(key(DPU_DEPLOYMENT, "dep"), world(derived))
    assert one(found, "PrerequisitesReady").message == "DPUServiceTemplate dpf/hbn does not exist"
    assert one(found, "ResourceFittingReady").holds
    assert chain(key(DPU_DEPLOYMENT, "dep"), world(derived)) == ["DPUServiceTemplate dpf/hbn does not exist *"]


def test_a_deployment_whose_set_another_deployment_has_names_both() -> None:
    derived = Derived(parts())
    spec = {"dpus": {"bfb": "image", "flavor": "flavor", "dpuSets": [{"nameSuffix": "c"}]}}
    other = {"dpus": {"bfb": "image", "flavor": "flavor", "dpuSets": [{"nameSuffix": "b-c"}]}}
    derived.apply({key(DPU_DEPLOYMENT, "a-b"): row(spec, created_ms=9), key(DPU_DEPLOYMENT, "a"): row(other)})
    found = one(conditions_of(key(DPU_DEPLOYMENT, "a-b"), world(derived)), "DPUSetsReconciled")
    assert found.message == (
        "DPUSet dpf/a-b-c belongs to DPUDeployment dpf/a, which is older than DPUDeployment dpf/a-b"
    )


def _interface(identity: str, kind: str = "service", **labels: str) -> Resource:
    end = {"interfaceType": kind, "service": {"serviceID": identity, "network": "n", "interfaceName": "p0"}}
    return row({"template": {"spec": {"template": {"metadata": {"labels": labels}, "spec": end}}}})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "DPUServiceInterface dpf/if does not exist"),
        (
            {key(DPU_SERVICE_INTERFACE, "if"): _interface("b")},
            "DPUServiceInterface dpf/if is for serviceID 'b', not 'a'",
        ),
        (
            {key(DPU_SERVICE_INTERFACE, "if"): _interface("a", "vf")},
            "DPUServiceInterface dpf/if is not of type service",
        ),
        (
            {
                key(DPU_SERVICE_INTERFACE, "if"): _interface("a"),
                key(DPU_SERVICE, "old"): row({"serviceID": "a", "interfaces": ["if"]}),
            },
            "DPUServiceInterface dpf/if is used by DPUService dpf/old already",
        ),
    ],
)
def test_a_service_needs_interfaces_of_its_own(rows: dict[str, Resource], message: str) -> None:
    service = row({"serviceID": "a", "interfaces": ["if"]}, created_ms=5)
    derived = Derived(rows | {key(DPU_SERVICE, "svc"): service})
    found = one(conditions_of(key(DPU_SERVICE, "svc"), world(derived)), "DPUServiceInterfaceReconciled")
    assert (found.reason, found.message) == ("Error", message)


def test_a_port_without_an_interface_is_named_with_its_labels() -> None:
    ports = [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}]
    spec = {"template": {"spec": {"template": {"spec": {"switches": [{"ports": ports}]}}}}}
    derived = Derived({key(DPU_SERVICE_CHAIN, "chain"): row(spec)})
    message = "no DPUServiceInterface has the labels uplink=p0 of a port of switch 0"
    assert (
        message in one(conditions_of(key(DPU_SERVICE_CHAIN, "chain"), world(derived)), "ServiceChainSetReady").message
    )
    derived.apply({key(DPU_SERVICE_INTERFACE, "if"): _interface("a", uplink="p0", other="x")})
    found = one(conditions_of(key(DPU_SERVICE_CHAIN, "chain"), world(derived)), "ServiceChainSetReady")
    assert message not in found.message


def test_objects_for_dpu_clusters_wait_for_a_cluster_that_answers() -> None:
    pool = key(DPU_SERVICE_IPAM, "pool")
    subnet = {"subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "perNodeIPCount": 8}
    derived = Derived({pool: row({"ipv4Subnet": subnet, "dpuClusterSelector": {"matchLabels": {"x": "1"}}})})
    aspect = "DPUIPAMObjectReconciled"
    assert one(conditions_of(pool, world(derived)), aspect).message == (
        "no DPUCluster exists that DPUServiceIPAM dpf/pool selects"
    )
    derived.apply({key(DPU_CLUSTER, "c"): row(labels={"x": "1"}), key(DPU_CLUSTER, "d"): row(labels={"x": "2"})})
    assert (
        one(conditions_of(pool, world(derived)), aspect).message
        == "DPUCluster dpf/c has not answered yet (the manager of the cluster reports it)"
    )
    assert one(conditions_of(pool, world(derived, DPUCluster_c=READY)), aspect).holds
    derived.apply({pool: row({})})
    found = one(conditions_of(pool, world(derived)), aspect)
    assert found.reason == "Error"
    assert found.message.endswith("has a fault: exactly one of ipv4Network and ipv4Subnet must be given")


def test_a_credential_request_waits_for_its_cluster() -> None:
    request = key(DPU_SERVICE_CREDENTIAL_REQUEST, "r")
    derived = Derived({request: row({"targetCluster": {"name": "c", "namespace": "dpf"}})})
    found = one(conditions_of(request, world(derived)), "ServiceAccountReconciled")
    assert found.message == "DPUCluster dpf/c does not exist"


def test_an_object_that_is_being_deleted_says_what_keeps_it() -> None:
    image = one(conditions_of(key(BFB, "image"), world(fleet(image=row(deleted_ms=3)), BFB_image=READY)))
    assert (image.reason, image.message) == ("AwaitingDeletion", "BFB dpf/image is in use by DPUSet dpf/new")
    child = row(labels={OWNING_DEPLOYMENT: "dpf_dep"})
    rows = {key(DPU_DEPLOYMENT, "dep"): row({"dpus": {}}, deleted_ms=3), key(DPU_SERVICE, "fw-x"): child}
    found = one(conditions_of(key(DPU_DEPLOYMENT, "dep"), world(Derived(rows))))
    assert found.message == "DPUDeployment dpf/dep waits until DPUService dpf/fw-x is deleted"
    flavor = conditions_of(key(DPU_FLAVOR, "f"), world(Derived({key(DPU_FLAVOR, "f"): row()})))
    assert flavor == (), "the kind has no conditions"


def test_an_object_that_is_being_deleted_blames_the_objects_that_use_it() -> None:
    deleted = world(fleet(image=row(deleted_ms=3)))
    assert chain(key(BFB, "image"), deleted)[0] == "BFB dpf/image is in use by DPUSet dpf/new"
    assert "BFB dpf/image is being deleted" not in "\n".join(chain(key(BFB, "image"), deleted))
    assert chain(key(DPU_SET, "new"), deleted)[0] == "BFB dpf/image is being deleted *"


def test_a_set_whose_selector_matches_nothing_is_ready_and_says_so() -> None:
    ready = one(conditions_of(key(DPU_SET, "new"), world(fleet(a=None, d0=None), BFB_image=READY)))
    message = "DPUSet dpf/new has no DPU: its selectors match no DPUDevice of a DPUNode"
    assert (ready.status, ready.message) == ("True", message)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("one",), "DPUDeployment dpf/dep has no DPU: the selectors of its DPUSets match no DPUDevice of a DPUNode"),
        (("one", "all"), "DPUSet dpf/dep-one has no DPU"),
        (("all",), ""),
    ],
)
def test_a_ready_deployment_says_which_of_its_sets_have_no_dpu(sets: tuple[str, ...], message: str) -> None:
    nothing = {"dpuNodeSelector": {"matchLabels": {"rack": "none"}}}
    found = [{"nameSuffix": name} | (nothing if name != "all" else {}) for name in sets]
    derived = deployed(dpus={"bfb": "image", "flavor": "flavor", "dpuSets": found}, services={}, serviceChains=None)
    ready = one(conditions_of(key(DPU_DEPLOYMENT, "dep"), world(derived, BFB_image=READY, DPU_a_d0=READY)))
    assert (ready.status, ready.message) == ("True", message)

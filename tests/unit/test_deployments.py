"""The children of a DPUDeployment, its prerequisites, and the order of its services."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from projections.resources import kinds
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.deployments.children import Derived as DerivedDeployment
from projections.resources.deployments.quantities import misfits, quantity
from projections.resources.deployments.values import merged, referenced_services, with_service_names
from projections.resources.forecast import Forecast
from projections.resources.kinds import (
    BFB,
    DPU,
    DPU_DEPLOYMENT,
    DPU_FLAVOR,
    DPU_SERVICE,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_CONFIGURATION,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_TEMPLATE,
    DPU_SET,
)
from projections.resources.state import Observed, Resource, ResourcesChange, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import (
    CHAIN_VERSION,
    CONSUMED_BY,
    DEPLOYMENT_SERVICE,
    DOCA_VERSION,
    INTERFACE,
    OWNING_DEPLOYMENT,
    SERVICE_ID,
    service_version,
)
from tests.support.deployments import CHART, configuration, deployed, deployment, parts, template
from tests.support.derivations import Derived, content, full, key, row


def only(derived: Derived, kind: str, start: str = "") -> Wanted:
    found = [each for each in derived.derivation.wanted() if each.at.kind == kind and each.at.name.startswith(start)]
    assert len(found) == 1
    return found[0]


def blames(derived: Derived) -> list[str]:
    found = derived.derivation.deployments[key(DPU_DEPLOYMENT, "dep")]
    assert isinstance(found, DerivedDeployment)
    return [each.message for each in (*found.prerequisites.missing, *found.prerequisites.unfit)]


def test_a_service_is_made_from_template_and_configuration() -> None:
    found = only(deployed(), DPU_SERVICE, "hbn-")
    assert found.owner == key(DPU_DEPLOYMENT, "dep")
    assert found.labels == {OWNING_DEPLOYMENT: "dpf_dep", DEPLOYMENT_SERVICE: "hbn"}
    assert found.spec["helmChart"] == {"source": CHART["source"], "values": {"a": 1, "b": {"c": 1, "d": 2}}}
    assert found.spec["serviceID"] == "dpudeployment_dep_hbn"
    assert found.spec["security"] == {"privileged": False}
    assert found.spec["interfaces"] == [only(deployed(), DPU_SERVICE_INTERFACE).at.name]
    terms = found.spec["serviceDaemonSet"]["nodeSelector"]["nodeSelectorTerms"]
    assert terms == [
        {
            "matchExpressions": [
                {"key": service_version("hbn"), "operator": "In", "values": [found.at.name]},
                {"key": OWNING_DEPLOYMENT, "operator": "In", "values": ["dpf_dep"]},
            ]
        }
    ]


def test_interfaces_and_chain_agree_on_labels() -> None:
    derived = deployed()
    interface = only(derived, DPU_SERVICE_INTERFACE)
    labels = interface.spec["template"]["spec"]["template"]["metadata"]["labels"]
    assert labels == {SERVICE_ID: "dpudeployment_dep_hbn", INTERFACE: "p0_if"}
    chain = only(derived, DPU_SERVICE_CHAIN)
    switch = chain.spec["template"]["spec"]["template"]["spec"]["switches"][0]
    assert switch["ports"][0] == {"serviceInterface": {"matchLabels": labels, "ipam": {"matchLabels": {"pool": "a"}}}}
    assert switch["serviceMTU"] == 9000
    assert interface.at.name.startswith("hbn-p0-if-")


@pytest.mark.parametrize("is_disruptive", [True, False])
def test_each_interface_names_the_service_that_uses_it(is_disruptive: bool) -> None:
    derived = deployed()
    interfaces = [{"name": name, "network": "mybrhbn"} for name in ("p0_if", "p1_if")]
    policy = {"applyNodeEffect": is_disruptive}
    for service in ("hbn", "agent"):
        settings = configuration(service, interfaces=interfaces, upgradePolicy=policy)
        derived.apply({key(DPU_SERVICE_CONFIGURATION, service): settings})
    services = {
        each.at.name: each.spec["interfaces"] for each in derived.derivation.wanted() if each.at.kind == DPU_SERVICE
    }
    consumers = {
        each.at.name: each.annotations[CONSUMED_BY]
        for each in derived.derivation.wanted()
        if each.at.kind == DPU_SERVICE_INTERFACE
    }
    assert len(consumers) == 4
    assert consumers == {name: service for service, names in services.items() for name in names}


def test_nodes_carry_the_revision_that_services_and_chain_select() -> None:
    derived = deployed()
    dpu = derived.spec(DPU, "a-d0")
    assert dpu["bfb"] == "image"
    assert dpu["cluster"]["nodeLabels"] == {
        OWNING_DEPLOYMENT: "dpf_dep",
        service_version("hbn"): only(derived, DPU_SERVICE, "hbn-").at.name,
        service_version("agent"): only(derived, DPU_SERVICE, "agent-").at.name,
        CHAIN_VERSION: only(derived, DPU_SERVICE_CHAIN).at.name,
    }
    assert dpu["nodeEffect"]["applyOnLabelChange"] is True


def test_values_name_the_services_that_they_depend_on() -> None:
    derived = deployed()
    peer = only(derived, DPU_SERVICE, "agent-").spec["helmChart"]["values"]["peer"]
    assert peer == only(derived, DPU_SERVICE, "hbn-").at.name


def test_a_disruptive_change_makes_a_new_revision_and_others_keep_the_name() -> None:
    derived = deployed()
    before = only(derived, DPU_SERVICE, "hbn-").at.name
    derived.apply({key(DPU_SERVICE_CONFIGURATION, "hbn"): configuration("hbn", {"b": 3})})
    assert only(derived, DPU_SERVICE, "hbn-").at.name != before
    policy = {"applyNodeEffect": False}
    names = set()
    for value in (1, 2):
        changed = configuration("hbn", {"b": value}, upgradePolicy=policy)
        derived.apply({key(DPU_SERVICE_CONFIGURATION, "hbn"): changed})
        found = only(derived, DPU_SERVICE, "hbn-")
        assert found.spec["helmChart"]["values"]["b"] == value
        names.add(found.at.name)
    assert len(names) == 1


def test_a_new_revision_of_a_service_does_not_cut_the_chain() -> None:
    derived = deployed()
    before = only(derived, DPU_SERVICE_CHAIN)
    derived.apply({key(DPU_SERVICE_TEMPLATE, "agent"): template("agent", helmChart={"source": {"version": "2"}})})
    assert only(derived, DPU_SERVICE_CHAIN) == before


def test_the_list_of_switches_of_release_24_10_is_a_chain() -> None:
    switches = [{"ports": [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}]}]
    assert only(deployed(serviceChains=switches), DPU_SERVICE_CHAIN)
    assert deployed(serviceChains=None).names(DPU_SERVICE_CHAIN) == []


def test_a_service_in_the_cluster_of_the_hosts_selects_the_hosts() -> None:
    dpus = {"bfb": "image", "flavor": "flavor"}
    sets = [{"nameSuffix": "all", "dpuNodeSelector": {"matchLabels": {"rack": "1"}}}]
    derived = deployed(dpus=dpus | {"dpuSets": sets})
    derived.apply(
        {
            key(DPU_SERVICE_CONFIGURATION, "agent"): row(
                {"deploymentServiceName": "agent", "serviceConfiguration": {"deployInCluster": True}}
            )
        }
    )
    found = only(derived, DPU_SERVICE, "agent-").spec
    assert found["deployInCluster"] is True
    assert "security" not in found
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}
    assert found["serviceDaemonSet"]["nodeSelector"] == {"nodeSelectorTerms": [term]}


@pytest.mark.parametrize(
    ("kind", "name", "blame"),
    [
        (BFB, "image", "BFB dpf/image does not exist"),
        (DPU_FLAVOR, "flavor", "DPUFlavor dpf/flavor does not exist"),
        (DPU_SERVICE_TEMPLATE, "hbn", "DPUServiceTemplate dpf/hbn does not exist"),
        (DPU_SERVICE_CONFIGURATION, "agent", "DPUServiceConfiguration dpf/agent does not exist"),
    ],
)
def test_a_missing_prerequisite_holds_what_exists(kind: str, name: str, blame: str) -> None:
    derived = deployed()
    complete = derived.names(DPU)
    derived.apply({key(kind, name): None})
    assert blames(derived) == [blame]
    assert derived.names(DPU) == complete
    assert all(each.is_held for each in derived.derivation.wanted())
    derived.apply({key(kind, name): parts()[key(kind, name)]})
    assert blames(derived) == []
    assert not any(each.is_held for each in derived.derivation.wanted())


@pytest.mark.parametrize("kind", [BFB, DPU_FLAVOR])
def test_an_object_that_is_being_deleted_serves_until_it_is_gone(kind: str) -> None:
    derived = deployed()
    complete = [(each.at, each.is_held) for each in derived.derivation.wanted()]
    named = next(each for each in parts() if each.split("/")[1] == kind)
    derived.apply({named: replace(parts()[named], deleted_ms=5)})
    assert [(each.at, each.is_held) for each in derived.derivation.wanted()] == complete
    found = derived.derivation.deployments[key(DPU_DEPLOYMENT, "dep")]
    assert isinstance(found, DerivedDeployment)
    assert [each.key for each in found.prerequisites.leaving] == [named]


@pytest.mark.parametrize(
    ("rows", "blame"),
    [
        (
            {key(DPU_SERVICE_TEMPLATE, "hbn"): template("other")},
            "DPUServiceTemplate dpf/hbn is for service 'other', not 'hbn'",
        ),
        (
            {key(DPU_SERVICE_TEMPLATE, "hbn"): template("hbn", resourceRequirements={"memory": "8Gi"})},
            "DPUFlavor dpf/flavor is too small, memory: the services need 8589934592 and the flavor leaves 6442450944",
        ),
        (
            {key(DPU_SERVICE_CONFIGURATION, "hbn"): configuration("hbn", {"a": "{{ .Services.agent.Name }}"})},
            "DPUServiceConfiguration dpf/hbn names service 'agent', which is not in dependsOn of 'hbn'",
        ),
        (
            {key(DPU_SERVICE_CONFIGURATION, "hbn"): configuration("hbn", interfaces=[{"name": "P0", "network": "n"}])},
            "DPUServiceConfiguration dpf/hbn has a fault, interfaces.name: 'P0' must be 1 to 253 lower-case letters, "
            "digits, '.' and '-', no '.' or '-' at an end",
        ),
        (
            {key(DPU_SERVICE_TEMPLATE, "hbn"): row({"helmChart": 1})},
            "DPUServiceTemplate dpf/hbn cannot be read: spec: Expected `object`, got `int` - at `$.helmChart`",
        ),
    ],
)
def test_a_prerequisite_that_does_not_fit_is_to_blame(rows: dict[str, Resource], blame: str) -> None:
    derived = deployed()
    derived.apply(rows)
    assert blames(derived) == [blame]


@pytest.mark.parametrize(
    ("depends_on", "blame"),
    [
        ("none", "services.hbn.dependsOn: 'none' is not a service of the deployment"),
        ("agent", "services: agent, hbn depend on each other"),
    ],
)
def test_dependencies_must_exist_and_have_an_order(depends_on: str, blame: str) -> None:
    services = {
        "agent": {"serviceTemplate": "agent", "serviceConfiguration": "agent", "dependsOn": [{"name": "hbn"}]},
        "hbn": {"serviceTemplate": "hbn", "serviceConfiguration": "hbn", "dependsOn": [{"name": depends_on}]},
    }
    assert blames(deployed(services=services)) == [blame]


def test_a_stated_set_that_its_deployment_does_not_want_selects_nothing() -> None:
    rows = parts() | {
        key(DPU_SET, "dep-old"): row(
            {"dpuTemplate": {"spec": {"bfb": {"name": "old"}}}}, labels={OWNING_DEPLOYMENT: "dpf_dep"}
        )
    }
    derived = Derived(rows)
    assert derived.spec(DPU, "a-d0")["bfb"] == "old"
    derived.apply({key(DPU_DEPLOYMENT, "dep"): deployment()})
    assert derived.spec(DPU, "a-d0")["bfb"] == "image"
    derived.apply({key(DPU_DEPLOYMENT, "dep"): deployment(dpus={"bfb": "image", "flavor": "flavor"})})
    assert derived.names(DPU) == []


def test_edits_of_a_child_by_others_do_not_count() -> None:
    derived = deployed()
    before = [*derived.derivation.wanted()]
    stated = row({"dpuTemplate": {"spec": {"bfb": {"name": "other"}}}})
    assert derived.apply({key(DPU_SET, "dep-all"): stated}) == []
    assert [*derived.derivation.wanted()] == before


@pytest.mark.parametrize(("older", "newer"), [("a", "a-b"), ("a-b", "a")])
def test_sets_of_two_deployments_with_one_name_belong_to_the_older(older: str, newer: str) -> None:
    suffixes = {"a": "b-c", "a-b": "c"}
    derived = Derived(parts())
    for name, created_ms in ((newer, 9), (older, 8)):
        dpus = {"bfb": "image", "flavor": "flavor", "dpuSets": [{"nameSuffix": suffixes[name]}]}
        derived.apply({key(DPU_DEPLOYMENT, name): replace(deployment(dpus=dpus), created_ms=created_ms)})
    assert derived.derivation.children.lost(key(DPU_DEPLOYMENT, newer)) == {
        key(DPU_SET, "a-b-c"): key(DPU_DEPLOYMENT, older)
    }
    assert derived.derivation.children.lost(key(DPU_DEPLOYMENT, older)) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1500m", 1.5), ("2Gi", 2 * 1024**3), (3, 3), ("1e3", 1000), (".5", 0.5), ("2x", None), (True, None), ("", None)],
)
def test_quantities_are_those_of_kubernetes(text: Any, value: float | None) -> None:
    found = quantity(text)
    assert found == value if value is not None else found is None


def test_reserved_resources_are_not_for_services() -> None:
    needed: list[dict[str, Any]] = [{"cpu": 1}, {"cpu": "500m"}]
    assert misfits(needed, {"cpu": 2}, {"cpu": "500m"}) == []
    assert misfits(needed, {"cpu": 2}, {"cpu": "501m"}) == ["cpu: the services need 1.5 and the flavor leaves 1.499"]
    assert misfits(needed, None, {"cpu": 2}) == []
    assert misfits([{"gpu": 1}], {"cpu": 2}, None) == ["gpu: the services need 1 and the flavor leaves 0"]
    assert misfits([{"cpu": "x"}], {"cpu": 2}, None) == ["cpu: 'x' is not a quantity"]


def test_templates_in_values_have_delimiters_of_choice() -> None:
    values = {"a": ["x [[ .Services.hbn.Name ]]"], "b": '{{ (index .Services "h-b").Name }}'}
    assert referenced_services(values, "[[ ]]") == ["hbn"]
    assert referenced_services(values, None) == ["h-b"]
    assert with_service_names(values, {"hbn": "n"}, "[[ ]]")["a"] == ["x n"]
    assert with_service_names(values, {"h-b": "n"}, None)["b"] == "n"
    assert merged({"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2, 3]}) == {"a": {"b": 1, "d": 2}, "c": [1]}


def test_kinds_are_those_that_the_fold_names() -> None:
    assert kinds.short_name(key(kinds.NODE, "a")) == "Node a"
    assert kinds.short_name(key(BFB, "image")) == "BFB dpf/image"


def needing(versions: str) -> Resource:
    """The template of service hbn, which needs these versions of DOCA."""
    return replace(parts()[key(DPU_SERVICE_TEMPLATE, "hbn")], annotations={DOCA_VERSION: versions})


def matching(derived: Derived) -> Condition:
    world = World.of(derived.state, derived.derivation)
    found = conditions_of(key(DPU_DEPLOYMENT, "dep"), world)
    return next(each for each in found if each.type == "VersionMatchingReady")


NEEDS = "DPUServiceTemplate dpf/hbn needs version"
HAS_ANOTHER = "'^3' of {}, and BFB dpf/image has '2.9.1'"
HAS_NONE = "'^3' of {}, and no version of doca can be read from BFB dpf/image"
NOT_KNOWN = "'^3' of {}, and the versions of BFB dpf/image are not known yet"
NO_RANGE = "'new' of {}, which is no range of versions"


@pytest.mark.parametrize(
    ("needed", "observed", "expected", "blame"),
    [
        (">=2.9", {"ready": True, "versions": {"doca": "2.9.1"}}, ("True", "Success", ""), ""),
        ("^3", {"ready": True, "versions": {"doca": "2.9.1"}}, ("False", "Error", HAS_ANOTHER), BFB),
        ("^3", {"ready": True}, ("False", "Error", HAS_NONE), BFB),
        ("^3", {"ready": True, "versions": 1}, ("False", "Error", HAS_NONE), BFB),
        ("^3", {"ready": False}, ("Unknown", "Pending", NOT_KNOWN), BFB),
        ("^3", {}, ("Unknown", "Pending", NOT_KNOWN), BFB),
        ("new", {"ready": True}, ("False", "Error", NO_RANGE), DPU_SERVICE_TEMPLATE),
    ],
)
def test_services_need_versions_that_the_image_has(
    needed: str, observed: dict[str, Any], expected: tuple[str, str, str], blame: str
) -> None:
    derived = deployed()
    derived.observe(key(BFB, "image"), **observed)
    assert matching(derived).holds, "no service needs a version"
    derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): needing(needed)})
    found, (status, reason, message) = matching(derived), expected
    assert (found.status, found.reason) == (status, reason)
    assert found.message == (f"{NEEDS} {message.format(DOCA_VERSION)}" if message else "")
    assert [object_id(each.key).kind for each in found.blames] == ([blame] if blame else [])
    assert derived.derivation.holds(key(DPU_DEPLOYMENT, "dep")) == (reason == "Error")


def test_an_image_without_the_needed_version_changes_nothing_that_exists() -> None:
    derived = deployed()
    derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): needing(">=2.9"), key(BFB, "newer"): row()})
    derived.observe(key(BFB, "image"), ready=True, versions={"doca": "2.9.1"})
    derived.observe(key(BFB, "newer"), ready=True, versions={"doca": "2.7.0"})
    assert len([each for each in derived.derivation.wanted() if each.at.kind == DPU_SERVICE]) == 2
    dpus = {"bfb": "newer", "flavor": "flavor", "dpuSets": [{"nameSuffix": "all"}]}
    derived.apply({key(DPU_DEPLOYMENT, "dep"): deployment(dpus=dpus)})
    assert only(derived, DPU_SET).is_held and only(derived, DPU).is_held
    assert not [each for each in derived.derivation.wanted() if each.at.kind == DPU_SERVICE]
    derived.observe(key(BFB, "newer"), ready=True, versions={"doca": "2.9.3"})
    assert not only(derived, DPU).is_held and only(derived, DPU).spec["bfb"] == "newer"


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_versions_are_compared_in_whatever_order_they_become_known(order: tuple[int, ...]) -> None:
    derived = Derived(parts())
    steps: tuple[Callable[[], object], ...] = (
        lambda: derived.apply({key(DPU_DEPLOYMENT, "dep"): deployment()}),
        lambda: derived.apply({key(DPU_SERVICE_TEMPLATE, "hbn"): needing("^3")}),
        lambda: derived.observe(key(BFB, "image"), ready=True, versions={"doca": "2.9.1"}),
        lambda: derived.apply({key(BFB, "image"): row({"url": "https://images/b.bfb"})}),
    )
    for number in order:
        steps[number]()
    assert content(derived.derivation) == content(full(derived.state))
    assert matching(derived).reason == "Error"


@pytest.mark.parametrize(("doca", "actions"), [("2.9.1", False), ("3.1.0", True)])
def test_a_plan_knows_the_versions_of_images(doca: str, actions: bool) -> None:
    rows = parts() | {key(DPU_SERVICE_TEMPLATE, "hbn"): needing("^3")}
    seen = Observed("", json.dumps({"ready": True, "versions": {"doca": doca}}), "image store", 1, 1)
    change = {key(DPU_DEPLOYMENT, "dep"): deployment()}
    forecast = Forecast(rows, change, ResourcesChange(observed={key(BFB, "image"): seen}))
    while not forecast.advance():
        pass
    kinds_of_steps = {object_id(step.key).kind for step in forecast.steps()}
    assert (DPU_SERVICE in kinds_of_steps) == actions

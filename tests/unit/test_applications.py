"""What services become in Argo CD, and what is mirrored to DPU clusters for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources import kinds
from projections.resources.clusters import cluster_source
from projections.resources.conditions.causes import blocked_by, conditions_of
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.observation import Observation
from projections.resources.state import Resource
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import COMPONENT, IMAGE_PULL_SECRET
from tests.support.deployments import deployed
from tests.support.derivations import SOURCE, Derived, content, full, key, row

NAMESPACE = "dpf"
CONFIG = key(kinds.DPF_OPERATOR_CONFIG, "config")
C, D = key(kinds.DPU_CLUSTER, "c"), key(kinds.DPU_CLUSTER, "d", "other")
SERVICE = key(kinds.DPU_SERVICE, "svc")
CHART = {"source": {"repoURL": "oci://registry/charts", "version": "1", "chart": "hbn"}, "values": {"a": 1}}
STATIC = {"type": "static", "kubeconfig": "admin"}


def objects(**services: Any) -> dict[str, Resource]:
    """An operator's configuration, two clusters of different namespaces, and services by name."""
    rows = {CONFIG: row(), C: row(STATIC, labels={"x": "1"}), D: row(STATIC, labels={"x": "2"})}
    return rows | {key(kinds.DPU_SERVICE, name): row({"helmChart": CHART} | spec) for name, spec in services.items()}


def of_kind(derived: Derived, kind: str) -> dict[str, Wanted]:
    """The wanted objects of a kind in the cluster of the hosts, by name."""
    found = derived.derivation.in_clusters.claims.winners.values()
    return {each.at.name: each for each in found if each.at.kind == kind and each.at.source == SOURCE}


def one(found: tuple[Condition, ...], aspect: str = "Ready") -> Condition:
    return next(each for each in found if each.type == aspect)


def test_a_service_has_an_application_for_each_cluster() -> None:
    found = of_kind(Derived(objects(svc={"serviceID": "id"})), kinds.APPLICATION)
    assert len(found) == 2
    application = found["c-svc"]
    assert application.finalizers == ("resources-finalizer.argocd.argoproj.io",)
    assert application.labels == {
        "dpu.nvidia.com/cluster": "c",
        "dpu.nvidia.com/cluster-namespace": "dpf",
        "dpu.nvidia.com/dpuservice-name": "svc",
        "dpu.nvidia.com/dpuservice-namespace": "dpf",
        "dpu.nvidia.com/component": "dpuservice-manager",
    }
    values = {"a": 1, "serviceDaemonSet": {"labels": {"svc.dpu.nvidia.com/service": "id"}}}
    assert application.spec == {
        "project": "doca-platform-project-dpu",
        "source": {
            "repoURL": "registry/charts",
            "chart": "hbn",
            "targetRevision": "1",
            "helm": {"valuesObject": values},
        },
        "destination": {"name": "c", "namespace": "dpf"},
        "syncPolicy": {"automated": {"prune": True, "selfHeal": True}},
    }
    other = next(each for name, each in found.items() if name != "c-svc")
    assert other.at.name.startswith("d-svc-")
    assert other.spec["destination"]["name"] == "d.other"


def test_a_service_in_the_cluster_of_the_hosts_has_one_application() -> None:
    derived = Derived(objects(svc={"deployInCluster": True, "paused": True}))
    (application,) = of_kind(derived, kinds.APPLICATION).values()
    assert (application.at.name, application.spec["project"]) == ("in-cluster-svc", "doca-platform-project-host")
    assert application.annotations == {"argocd.argoproj.io/skip-reconcile": "true"}
    seen = World(derived.state, derived.derivation, {application.at.key: Observation(is_ready=True)})
    assert one(conditions_of(SERVICE, seen)).holds


def test_nothing_is_deployed_before_it_is_known_where_argo_cd_is() -> None:
    rows = objects(svc={})
    config = rows.pop(CONFIG)
    derived = Derived(rows)
    found = {kind: of_kind(derived, kind) for kind in (kinds.APPLICATION, kinds.APP_PROJECT, kinds.SECRET)}
    assert not any(found.values())
    reconciled = one(conditions_of(SERVICE, World(derived.state, derived.derivation, {})), "ApplicationsReconciled")
    assert (reconciled.reason, reconciled.message) == (
        "Pending",
        "no DPFOperatorConfig exists, which says where Argo CD is",
    )
    derived.apply({CONFIG: config})
    assert len(of_kind(derived, kinds.APPLICATION)) == 2
    derived.apply({CONFIG: row(deleted_ms=5)})
    assert len(of_kind(derived, kinds.APPLICATION)) == 2, "services go before their operator"


def test_names_are_unique_among_namespaces_and_short_enough_for_a_release() -> None:
    rows = objects(svc={})
    rows[key(kinds.DPU_CLUSTER, "c", "other")] = row(STATIC)
    rows[key(kinds.DPU_SERVICE, "svc", "other")] = row({"helmChart": CHART})
    rows[key(kinds.DPU_SERVICE, "s" * 63)] = row({"helmChart": CHART})
    derived = Derived(rows)
    found = of_kind(derived, kinds.APPLICATION)
    assert len(found) == 3 * 3
    assert max(map(len, found)) <= 63
    lost = [name for each in rows for name in derived.derivation.in_clusters.claims.lost(each)]
    assert not [each for each in lost if kinds.APPLICATION in each]
    secrets = of_kind(derived, kinds.SECRET)
    assert sorted(secrets) == ["dpf-c", "other.c", "other.d"]
    assert {each.secret.cluster for each in secrets.values() if each.secret} == {"c", "c.other", "d.other"}


def test_a_project_names_every_cluster_and_a_secret_names_the_kubeconfig() -> None:
    rows = objects() | {CONFIG: row({"overrides": {"argoCDNamespace": "argocd"}})}
    derived = Derived(rows)
    (project,) = of_kind(derived, kinds.APP_PROJECT).values()
    assert (project.at.namespace, project.at.name) == ("argocd", "doca-platform-project-dpu")
    assert project.spec["destinations"] == [{"name": "c", "namespace": "*"}, {"name": "d.other", "namespace": "*"}]
    assert project.spec["sourceNamespaces"] == ["dpf"]
    secret = of_kind(derived, kinds.SECRET)["dpf-c"]
    assert secret.at.namespace == "argocd"
    assert secret.labels["argocd.argoproj.io/secret-type"] == "cluster"
    assert secret.secret is not None
    assert (secret.secret.at.key, secret.secret.form) == (key(kinds.SECRET, "admin"), "argocd-cluster")
    assert secret.spec == secret.fields == {}
    derived.apply({D: None})
    (project,) = of_kind(derived, kinds.APP_PROJECT).values()
    assert project.spec["destinations"] == [{"name": "c", "namespace": "*"}]


def interface(name: str, network: str = "mybrhbn", identity: str = "id") -> Resource:
    end = {"serviceID": identity, "network": network, "interfaceName": name}
    template = {"spec": {"interfaceType": "service", "service": end}}
    return row({"template": {"spec": {"template": template}}})


def values_of(derived: Derived, name: str = "c-svc") -> dict[str, Any]:
    values: dict[str, Any] = of_kind(derived, kinds.APPLICATION)[name].spec["source"]["helm"]["valuesObject"]
    return values


def test_interfaces_become_networks_of_the_pods() -> None:
    given = '[{"name":"own","interface":"p1","mac":"m"},{"name":"more"}]'
    daemon_set = {"annotations": {"k8s.v1.cni.cncf.io/networks": given, "a": "1"}, "labels": {"b": "2"}}
    spec = {"serviceID": "id", "interfaces": ["i0", "i1"], "serviceDaemonSet": daemon_set}
    rows = objects(svc=spec)
    rows[key(kinds.DPU_SERVICE_INTERFACE, "i0")] = interface("p0")
    rows[key(kinds.DPU_SERVICE_INTERFACE, "i1")] = interface("p1", "elsewhere/net")
    derived = Derived(rows)
    found = values_of(derived)["serviceDaemonSet"]
    assert found["labels"] == {"b": "2", "svc.dpu.nvidia.com/service": "id"}
    assert found["annotations"]["a"] == "1"
    assert json.loads(found["annotations"]["k8s.v1.cni.cncf.io/networks"]) == [
        {"name": "more"},
        {"name": "mybrhbn", "namespace": "dpf", "interface": "p0"},
        {"name": "own", "namespace": "elsewhere", "interface": "p1", "mac": "m"},
    ]
    changed = derived.apply({key(kinds.DPU_SERVICE_INTERFACE, "i0"): interface("p7")})
    assert any(kinds.APPLICATION in each for each in changed)
    assert '"interface":"p7"' in values_of(derived)["serviceDaemonSet"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
    derived.apply({key(kinds.DPU_SERVICE_INTERFACE, "i0"): None})
    assert of_kind(derived, kinds.APPLICATION) == {}
    found_conditions = conditions_of(SERVICE, World(derived.state, derived.derivation, {}))
    reconciled = one(found_conditions, "ApplicationsReconciled")
    assert reconciled.reason == "Error"
    assert "DPUServiceInterface dpf/i0 does not exist" in reconciled.message


def test_values_of_the_user_win_and_ports_are_exposed() -> None:
    values = {"serviceDaemonSet": {"labels": {"c": "3"}, "resources": {"cpu": 1}}}
    spec = {
        "serviceID": "id",
        "serviceDaemonSet": {"labels": {"c": "2"}, "resources": {"cpu": 9, "memory": "1Gi"}},
        "helmChart": CHART | {"values": values},
        "configPorts": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    }
    found = values_of(Derived(objects(svc=spec)))
    assert found["serviceDaemonSet"] == {
        "labels": {"c": "3", "svc.dpu.nvidia.com/service": "id"},
        "resources": {"cpu": 1, "memory": "1Gi"},
    }
    labels = {"dpu.nvidia.com/dpuservice-name": "svc", "dpu.nvidia.com/dpuservice-namespace": "dpf"}
    assert found["exposedPorts"] == {"labels": labels, "ports": {"http": True}}


def test_a_component_of_the_system_gets_its_settings_as_global_values() -> None:
    flannel = {"helmChart": "oci://registry.example/charts/dpu-networking:v1", "podCIDR": "10.0.0.0/8"}
    spec = {"flannel": flannel, "multus": {"disable": True} | flannel, "imagePullSecrets": ["pull"], "nvipam": {}}
    derived = Derived(objects() | {CONFIG: row(spec)})
    service = derived.derivation.children.winners[key(kinds.DPU_SERVICE, "flannel")]
    assert [each.at.name for each in derived.derivation.children.winners.values()] == ["flannel"]
    assert service.labels == {COMPONENT: "flannel"}
    chart = service.spec["helmChart"]
    assert chart["source"] == {"repoURL": "oci://registry.example/charts", "chart": "dpu-networking", "version": "v1"}
    values = chart["values"]["flannel"]
    assert (values["enabled"], values["podCidr"], values["flannel"]["mtu"]) == (True, "10.0.0.0/8", "1500")
    assert values["imagePullSecrets"] == [{"name": "pull"}]
    daemon_set = values_of(derived, "c-flannel")["global"]["serviceDaemonSet"]
    assert daemon_set["annotations"] == {"dpu.nvidia.com/cluster": "c", "dpu.nvidia.com/cluster-namespace": "dpf"}
    copies = [each for each in derived.derivation.wanted() if each.secret and each.secret.form == "copy"]
    assert {each.at.source for each in copies} == {cluster_source(C), cluster_source(D)}
    assert {(each.at.name, each.secret.at.key) for each in copies if each.secret} == {
        ("pull", key(kinds.SECRET, "pull"))
    }
    assert all(IMAGE_PULL_SECRET in each.labels for each in copies)


def test_a_component_gets_images_resources_and_paths_where_its_chart_reads_them() -> None:
    chart = {"helmChart": "oci://registry.example/charts/dpu-networking:v1"}
    resources = {"requests": {"cpu": "1"}}
    spec = {
        "flannel": chart | {"daemon": {"image": "r.example:5000/flannel:v2", "resources": resources}},
        "sfcController": chart | {"image": "r.example/sfc"},
        "multus": chart,
        "monitoring": {"openTelemetryCollector": chart | {"metrics": {"endpoint": "https://m.example"}}},
        "overrides": {"dpuCNIBinPath": "/cni", "dpuOpenvSwitchSystemSharedLib64Path": "/lib64"},
    }
    derived = Derived({CONFIG: row(spec)})
    services = {each.at.name: each.spec["helmChart"]["values"] for each in derived.derivation.children.winners.values()}
    assert sorted(services) == ["flannel", "multus", "opentelemetry-collector", "sfc-controller"]
    flannel = services["flannel"]["flannel"]["flannel"]
    assert flannel["image"] == {"repository": "r.example:5000/flannel", "tag": "v2"}
    assert (flannel["resources"], flannel["cniBinDir"]) == (resources, "/cni")
    manager = services["sfc-controller"]["sfc-controller"]["controllerManager"]["manager"]
    assert manager == {"image": {"repository": "r.example/sfc"}, "secureFlowDeletionTimeout": "0s"}
    assert services["sfc-controller"]["sfc-controller"]["openvSwitchSharedLibrary64Dir"] == "/lib64"
    assert services["multus"]["multus"]["cniConfDir"] == "/etc/cni/net.d/"
    collector = services["opentelemetry-collector"]["opentelemetry-collector"]
    assert collector == {"enabled": True, "managementEndpoint": "https://m.example"}


def test_images_of_flannel_in_the_older_form() -> None:
    images = {"flannelCNI": "r/cni:1", "kubeFlannel": "r/flannel:2"}
    spec = {"flannel": {"helmChart": "oci://r/dpu-networking:v1", "image": images}}
    service = Derived({CONFIG: row(spec)}).derivation.children.winners[key(kinds.DPU_SERVICE, "flannel")]
    values = service.spec["helmChart"]["values"]["flannel"]["flannel"]
    assert values["image"] == {"repository": "r/flannel", "tag": "2"}
    assert values["image_cni"] == {"repository": "r/cni", "tag": "1"}


def test_a_condition_says_which_components_are_off_and_why() -> None:
    chart = {"helmChart": "https://charts.example/multus:1"}
    spec = {"multus": chart, "flannel": chart | {"disable": True}, "monitoring": {"disable": True}, "nvipam": {}}
    derived = Derived({CONFIG: row(spec)})
    found = one(conditions_of(CONFIG, World(derived.state, derived.derivation, {})), "SystemComponentsReconciled")
    assert found.holds
    assert found.message == (
        "disabled: flannel, kube-state-metrics, node-problem-detector, opentelemetry-collector; "
        "without a helmChart: sriov-device-plugin, ovs-cni, nvidia-k8s-ipam, cni-installer, "
        "servicechainset-controller, sfc-controller, ovs-helper, kata-containers"
    )


@pytest.mark.parametrize("chart", ["registry", "oci://registry/charts/hbn", "oci://registry:5000/hbn", "oci://r//:1"])
def test_a_chart_that_is_not_one_is_a_condition(chart: str) -> None:
    derived = Derived({CONFIG: row({"multus": {"helmChart": chart}})})
    found = one(conditions_of(CONFIG, World(derived.state, derived.derivation, {})), "SystemComponentsReconciled")
    assert found.reason == "Error"
    assert f"multus: helmChart: {chart!r} must be REPOSITORY/CHART:VERSION" in found.message


def test_the_operator_waits_for_its_components_and_is_ready_without_a_dpu() -> None:
    spec = {"multus": {"helmChart": "https://charts.example/multus:1"}}
    derived = Derived(objects() | {CONFIG: row(spec)})
    seen = {C: Observation(is_ready=True), D: Observation(is_ready=True)}
    assert [each.message for each in blocked_by(CONFIG, World(derived.state, derived.derivation, seen))][-1] == (
        next(
            f"Application dpf/{name} has not been deployed yet (Argo CD reports it)"
            for name in sorted(of_kind(derived, kinds.APPLICATION), reverse=True)
        )
    )
    healthy = {each.at.key: Observation(is_ready=True) for each in of_kind(derived, kinds.APPLICATION).values()}
    assert one(conditions_of(CONFIG, World(derived.state, derived.derivation, seen | healthy))).holds
    later = key(kinds.DPF_OPERATOR_CONFIG, "later")
    derived.apply({later: row(created_ms=9)})
    found = one(conditions_of(later, World(derived.state, derived.derivation, {})), "SystemComponentsReconciled")
    assert (
        found.message == "DPFOperatorConfig dpf/config is older than DPFOperatorConfig dpf/later, and only one counts"
    )


def test_a_service_names_its_application_and_the_first_unhealthy_resource() -> None:
    derived = deployed()
    derived.apply(objects())
    name, application = next(iter(of_kind(derived, kinds.APPLICATION).items()))
    message = "DaemonSet dpf/hbn is Progressing: 1 of 3 pods are ready"
    seen = {C: Observation(is_ready=True), D: Observation(is_ready=True)}
    seen |= {each.at.key: Observation(is_ready=True) for each in of_kind(derived, kinds.APPLICATION).values()}
    seen[application.at.key] = Observation(is_ready=False, phase="Progressing", message=message)
    world = World(derived.state, derived.derivation, seen)
    ready = one(conditions_of(application.owner, world), "ApplicationsReady")
    assert ready.message == f"Application dpf/{name} is Progressing: {message}"
    chain = [each.key for each in blocked_by(key(kinds.DPU_DEPLOYMENT, "dep"), world) if each.is_root]
    assert application.at.key in chain
    seen[application.at.key] = Observation(is_ready=False, phase="Healthy")
    assert one(conditions_of(application.owner, world), "ApplicationsReady").message.endswith("is not synced")


def test_two_services_whose_applications_would_have_one_name_are_told_apart() -> None:
    rows = {CONFIG: row(), key(kinds.DPU_CLUSTER, "a-b"): row(STATIC), key(kinds.DPU_CLUSTER, "a"): row(STATIC)}
    older, younger = key(kinds.DPU_SERVICE, "c"), key(kinds.DPU_SERVICE, "b-c")
    rows[older], rows[younger] = row({"helmChart": CHART}), row({"helmChart": CHART}, created_ms=2)
    derived = Derived(rows)
    found = one(conditions_of(younger, World(derived.state, derived.derivation, {})), "ApplicationsReconciled")
    assert found.message == (
        "Application dpf/a-b-c belongs to DPUService dpf/c, which is older than DPUService dpf/b-c"
    )


def test_a_request_wants_an_account_in_its_target_and_copies_of_a_pull_secret() -> None:
    spec = {
        "serviceAccount": {"name": "robot", "namespace": "robots"},
        "targetCluster": {"name": "c", "namespace": "dpf"},
        "secret": {"name": "token", "namespace": "dpf"},
        "metadata": {"labels": {IMAGE_PULL_SECRET: ""}},
    }
    request = key(kinds.DPU_SERVICE_CREDENTIAL_REQUEST, "r")
    derived = Derived(objects() | {request: row(spec)})
    accounts = [each for each in derived.derivation.wanted() if each.at.kind == kinds.SERVICE_ACCOUNT]
    (account,) = accounts
    assert (account.at.source, account.at.namespace, account.at.name) == (cluster_source(C), "robots", "robot")
    assert account.fields == {"automountServiceAccountToken": False}
    assert account.labels["svc.dpu.nvidia.com/credential-request-name"] == "r"
    spaces = {each.at.name: each for each in derived.derivation.wanted() if each.at.kind == kinds.NAMESPACE}
    assert spaces["robots"].outlives_owner
    copies = [each for each in derived.derivation.wanted() if each.secret and each.secret.form == "copy"]
    assert [each.at.name for each in copies] == ["token", "token"]
    derived.apply({C: row(STATIC, deleted_ms=3)})
    assert not [each for each in derived.derivation.wanted() if each.at.kind == kinds.SERVICE_ACCOUNT]


SPECS = st.fixed_dictionaries(
    {
        "helmChart": st.sampled_from([CHART, {}]),
        "deployInCluster": st.sampled_from([None, True]),
        "interfaces": st.sampled_from([None, ["a"], ["b"]]),
        "serviceID": st.just("id"),
        "dpuClusterSelector": st.sampled_from([None, {"matchLabels": {"x": "1"}}, {"a": 1}]),
        "serviceDaemonSet": st.sampled_from([{}, {"annotations": {"k8s.v1.cni.cncf.io/networks": "["}}]),
    }
)
CLUSTERS = st.sampled_from([STATIC, {"type": "kamaji"}, {"type": 1}])
CONFIGS = st.sampled_from(
    [{}, {"imagePullSecrets": ["p"]}, {"imagePullSecrets": 1}, {"multus": {"helmChart": "https://c/m:1"}}]
)
REQUESTS = st.fixed_dictionaries(
    {
        "serviceAccount": st.just({"name": "robot"}),
        "targetCluster": st.sampled_from([None, {"name": "a", "namespace": "dpf"}]),
        "metadata": st.sampled_from([None, {"labels": {IMAGE_PULL_SECRET: ""}}]),
    }
)


def changes(kind: str, specs: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Resource | None]]:
    rows = st.builds(
        lambda spec, label, deleted_ms: row(spec, labels={"x": label}, deleted_ms=deleted_ms),
        specs,
        st.sampled_from(["1", "2"]),
        st.sampled_from([0, 0, 0, 7]),
    )
    return st.tuples(st.builds(key, st.just(kind), st.sampled_from(["a", "b"])), st.one_of(st.none(), rows))


CHANGES = st.one_of(
    changes(kinds.DPU_SERVICE, SPECS),
    changes(kinds.DPU_CLUSTER, CLUSTERS),
    changes(kinds.DPF_OPERATOR_CONFIG, CONFIGS),
    changes(kinds.DPU_SERVICE_CREDENTIAL_REQUEST, REQUESTS),
    st.tuples(
        st.builds(key, st.just(kinds.DPU_SERVICE_INTERFACE), st.sampled_from(["a", "b"])),
        st.sampled_from([None, interface("p0"), interface("p1"), row({"template": 1})]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_what_services_become_does_not_depend_on_the_order_of_arrival(steps: list[Any], rng: Any) -> None:
    derived = Derived()
    for name, found in steps:
        before = {each.at.key: each for each in derived.derivation.wanted()}
        changed = derived.apply({name: found})
        after = {each.at.key: each for each in derived.derivation.wanted()}
        assert {each for each in (*before, *after) if before.get(each) != after.get(each)} <= set(changed)
    names = [*derived.state.objects.rows]
    rng.shuffle(names)
    again = full(derived.state, [])
    for each in names:
        again.update(derived.state, [each])
    assert content(again) == content(derived.derivation)
    assert again.in_clusters.faults == derived.derivation.in_clusters.faults
    world = World(derived.state, derived.derivation, {})
    for each in names:
        assert conditions_of(each, world) is not None

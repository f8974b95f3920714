"""The Helm chart, rendered by the real helm: what its pods get, what they may do, and which values it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.kubernetes.resource_edge import STATED_KINDS
from deploy.composition.roles import ROLES
from deploy.kubernetes import ALERTS, HERE
from deploy.kubernetes.chart_values import CHART, values
from deploy.settings.settings import load_settings
from projections.fleet.withdrawals.principals import Principal, parse_uri
from tests.support.kubernetes.chart import (
    CLUSTER_NAMESPACES,
    DRIVER_NAMESPACE,
    KAFKA,
    LAB,
    MANAGED,
    NAMESPACE,
    RELEASE,
    SECRETS,
    VALUE_SETS,
    Object,
    Values,
    helm,
    of_kind,
    pods_of,
    render,
    selects,
)

pytestmark = pytest.mark.usefixtures("kubernetes_programs")

READ = ["get", "list", "watch"]
EDGE_RULES = {
    ("", "nodes"): READ,
    ("", "events"): ["create", "patch"],
    ("dpuplane.io", "dpuracks"): [*READ, "create", "delete"],
    ("dpuplane.io", "dpuracks/status"): ["patch"],
    ("dpuplane.io", "rulepolicies"): READ,
    ("dpuplane.io", "rulepolicies/status"): ["patch"],
    ("dpuplane.io", "holds"): [*READ, "create", "delete"],
    ("dpuplane.io", "holds/status"): ["patch"],
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): ["get"],
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): ["get"],
}
"""Every right of the Kubernetes edge, but for cliques."""
DOMAIN_RULES = {
    ("resource.nvidia.com", "computedomains"): READ,
    ("resource.nvidia.com", "computedomains/status"): ["update"],
}
CLIQUE_RULES = {
    ("", "pods"): READ,
    ("resource.nvidia.com", "computedomaincliques"): [*READ, "create", "update", "delete"],
}
"""Its rights in the namespace of upstream's driver."""
CHANGE = [*READ, "create", "patch", "delete"]
MADE = ("DPUSet", "DPU", "DPUService", "DPUServiceChain", "DPUServiceInterface")
"""Kinds of DPF of which the plane makes objects."""
RESOURCE_RULES = {
    **{(kind.group, kind.plural): CHANGE if kind.name in MADE else [*READ, "patch"] for kind in STATED_KINDS},
    **{(kind.group, f"{kind.plural}/status"): ["patch"] for kind in STATED_KINDS if kind.has_status},
    **{("provisioning.dpu.nvidia.com", f"{plural}/finalizers"): ["update"] for plural in ("dpusets", "dpuclusters")},
    **{("svc.dpu.nvidia.com", f"{plural}/finalizers"): ["update"] for plural in ("dpudeployments", "dpuservices")},
    ("argoproj.io", "applications"): CHANGE,
    ("argoproj.io", "appprojects"): CHANGE,
    ("kamaji.clastix.io", "tenantcontrolplanes"): CHANGE,
    ("", "services"): CHANGE,
    ("", "configmaps"): CHANGE,
    ("", "serviceaccounts"): CHANGE,
    ("apps", "daemonsets"): CHANGE,
    ("discovery.k8s.io", "endpointslices"): CHANGE,
    ("", "namespaces"): [*READ, "create", "patch"],
    ("", "nodes"): [*READ, "patch"],
    ("", "pods"): ["list", "watch"],
    ("", "pods/eviction"): ["create"],
    ("maintenance.nvidia.com", "nodemaintenances"): [*READ, "create", "update", "delete"],
    ("provisioning.dpu.nvidia.com", "dpunodemaintenances"): [*READ, "create", "update", "patch", "delete"],
    ("provisioning.dpu.nvidia.com", "dpunodes"): [*READ, "create", "update", "patch"],
    ("provisioning.dpu.nvidia.com", "dpudevices"): [*READ, "create", "patch"],
}
SECRET_RULES = {
    ("", "secrets"): CHANGE,
    ("", "serviceaccounts/token"): ["create"],
    ("", "configmaps"): ["get"],
    ("", "pods"): [*READ, "create", "delete"],
    ("batch", "jobs"): [*READ, "create", "delete"],
}
"""Its rights in the namespaces of DPUClusters."""


NETWORKED = {
    name: chosen for name, chosen in VALUE_SETS.items() if chosen.get("networkPolicy", {}).get("enabled", True)
}
"""The sets of values with network policies."""


@pytest.fixture(scope="module", params=VALUE_SETS.values(), ids=list(VALUE_SETS))
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """The chart rendered with one set of values."""
    return render(request.param, tmp_path_factory.mktemp("chart"))


@pytest.mark.parametrize("chosen", VALUE_SETS.values(), ids=list(VALUE_SETS))
def test_helm_finds_no_fault(chosen: Values, tmp_path: Path) -> None:
    done = helm("lint", str(CHART), "--strict", values=chosen, folder=tmp_path)
    assert not done.returncode, done.stdout + done.stderr


def test_each_process_accepts_its_settings(objects: list[Object]) -> None:
    for role, pod in pods_of(objects):
        settings = load_settings({}, None, _environment(pod))
        assert settings.role == role
        ports = {each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
        assert ports.pop("http") == settings.http.port
        listeners = {name: ROLES[name].listener for name in (ROLES if role == "all" else [role])}
        assert ports.keys() == {{"listen": "grpc"}.get(name, name) for name in listeners.values() if name}


def test_each_file_of_a_setting_is_mounted(objects: list[Object]) -> None:
    for _, pod in pods_of(objects):
        container = pod["spec"]["containers"][0]
        mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
        assert {each["name"] for each in mounts.values()} <= {*_volumes(pod), "data"}
        for name, value in _environment(pod).items():
            if value.startswith("/"):
                assert any(value.startswith(f"{path}/") for path in mounts), name
        writable = {path for path, each in mounts.items() if not each.get("readOnly")}
        assert writable - {"/var/lib/dpuplane/images"} == {"/var/lib/dpuplane", "/tmp"}
        assert ("/var/lib/dpuplane/images" in writable) == ("images" in _volumes(pod))


def test_pods_meet_the_restricted_standard(objects: list[Object]) -> None:
    for _, pod in pods_of(objects):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not any("hostPath" in volume for volume in spec["volumes"])


def test_each_role_has_its_own_account_and_only_the_edge_a_token(objects: list[Object]) -> None:
    accounts = {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}
    used = [pod["spec"]["serviceAccountName"] for _, pod in pods_of(objects)]
    assert sorted(used) == sorted(accounts)
    for _, pod in pods_of(objects):
        calls = "DPUPLANE_KUBECONFIG" in _environment(pod)
        assert pod["spec"]["automountServiceAccountToken"] is calls


def test_no_account_has_more_rights_than_its_role_needs(objects: list[Object]) -> None:
    bindings = of_kind(objects, "ClusterRoleBinding", "RoleBinding")
    bound = {subject["name"] for each in bindings for subject in each["subjects"]}
    watching = [pod for _, pod in pods_of(objects) if _watches(pod)]
    assert bound == {pod["spec"]["serviceAccountName"] for pod in watching}
    has_cliques = any("DPUPLANE_KUBERNETES_CLIQUES" in _environment(pod) for pod in watching)
    has_resources = any(_environment(pod)["DPUPLANE_KUBERNETES_RESOURCES"] == "true" for pod in watching)
    expected = EDGE_RULES | (DOMAIN_RULES if has_cliques else {}) | (RESOURCE_RULES if has_resources else {})
    in_namespaces: dict[str | None, Any] = {DRIVER_NAMESPACE: CLIQUE_RULES} if has_cliques else {}
    in_namespaces |= dict.fromkeys(CLUSTER_NAMESPACES, SECRET_RULES) if has_resources else {}
    found = {}
    for binding in bindings:
        namespace = binding["metadata"].get("namespace")
        role = next(
            each
            for each in of_kind(objects, "ClusterRole", "Role")
            if each["metadata"]["name"] == binding["roleRef"]["name"] and each["metadata"].get("namespace") == namespace
        )
        assert (role["kind"], binding["kind"]) in (("Role", "RoleBinding"), ("ClusterRole", "ClusterRoleBinding"))
        found[namespace] = _rights(role)
    assert found == (in_namespaces | {None: expected} if watching else {})
    for role in of_kind(objects, "ClusterRole", "Role"):
        for (group, resource), verbs in _rights(role).items():
            assert "*" not in (group, resource, *verbs)
            assert resource != "secrets" or role["kind"] == "Role"
            assert resource != "nodes" or verbs == (RESOURCE_RULES[group, resource] if has_resources else READ)


def test_further_source_clusters_are_named_with_their_mounted_kubeconfigs(tmp_path: Path) -> None:
    others = {"east": "east-cluster", "west": "west.cluster"}
    values = {**LAB, **KAFKA, "kubernetes": {"source": "hub", "others": others}}
    pods = dict(pods_of(render(values, tmp_path)))
    settings = load_settings({}, None, _environment(pods["kubernetes"]))
    assert dict(settings.source_clusters) == {
        "hub": "in-cluster",
        "east": "/etc/dpuplane/kubeconfig-east/kubeconfig",
        "west": "/etc/dpuplane/kubeconfig-west/kubeconfig",
    }
    volumes = _volumes(pods["kubernetes"])
    assert {name: volumes[f"kubeconfig-{name}"]["secret"]["secretName"] for name in others} == others
    mounts = {each["mountPath"] for each in pods["kubernetes"]["spec"]["containers"][0]["volumeMounts"]}
    assert {"/etc/dpuplane/kubeconfig-east", "/etc/dpuplane/kubeconfig-west"} <= mounts
    assert not any(name.startswith("kubeconfig") for name in _volumes(pods["api"]))


def test_provisioners_share_the_images_of_a_claim(tmp_path: Path) -> None:
    chosen = {
        **KAFKA,
        **LAB,
        "images": {"existingClaim": "images", "url": "https://images.example:7083", "hosts": ["x"]},
    }
    found = dict(pods_of(render(chosen, tmp_path)))
    assert [role for role, pod in found.items() if "images" in _volumes(pod)] == ["provisioner"]
    settings = load_settings({}, None, _environment(found["provisioner"]))
    assert str(settings.images_folder) == "/var/lib/dpuplane/images"
    assert (settings.images_url, settings.image_hosts) == ("https://images.example:7083", "x")


def test_without_events_the_edge_has_no_right_to_write_them(tmp_path: Path) -> None:
    objects = render({**LAB, "kubernetes": {"events": False}}, tmp_path)
    ((_, pod),) = pods_of(objects)
    assert not load_settings({}, None, _environment(pod)).kubernetes_events
    (edge,) = (each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"].endswith("-kubernetes"))
    assert _rights(edge) == {key: verbs for key, verbs in EDGE_RULES.items() if key != ("", "events")}


def test_only_approvers_may_change_a_hold(tmp_path: Path) -> None:
    roles = of_kind(render(LAB, tmp_path), "ClusterRole")
    may_change = {
        each["metadata"]["name"]
        for each in roles
        if {"update", "patch"} & set(_rights(each).get(("dpuplane.io", "holds"), ()))
    }
    assert may_change == {f"{NAMESPACE}-{RELEASE}-approver"}


def test_selectors_find_the_pods(objects: list[Object]) -> None:
    pods = dict(pods_of(objects))
    labels = [pod["metadata"]["labels"] for pod in pods.values()]
    for service in of_kind(objects, "Service"):
        found = [pod for pod in pods.values() if selects(service["spec"]["selector"], pod["metadata"]["labels"])]
        assert found, service["metadata"]["name"]
        for port in service["spec"]["ports"]:
            for pod in found:
                assert port["targetPort"] in {each["name"] for each in pod["spec"]["containers"][0]["ports"]}
    for budget in of_kind(objects, "PodDisruptionBudget"):
        assert sum(selects(budget["spec"]["selector"], each) for each in labels) == 1
    for policy in of_kind(objects, "NetworkPolicy"):
        assert any(selects(policy["spec"]["podSelector"], each) for each in labels)


def test_a_drain_takes_one_process_of_a_role(objects: list[Object]) -> None:
    budgets = of_kind(objects, "PodDisruptionBudget")
    many = [each for each in of_kind(objects, "Deployment", "StatefulSet") if each["spec"]["replicas"] > 1]
    assert {each["metadata"]["name"] for each in budgets} == {each["metadata"]["name"] for each in many}
    assert all(each["spec"]["maxUnavailable"] == 1 for each in budgets)


@pytest.mark.parametrize("objects", NETWORKED.values(), ids=list(NETWORKED), indirect=True)
def test_the_network_opens_the_listeners_and_what_each_role_calls(objects: list[Object]) -> None:
    policies = of_kind(objects, "NetworkPolicy")
    for role, pod in pods_of(objects):
        labels = pod["metadata"]["labels"]
        own = [each["spec"] for each in policies if selects(each["spec"]["podSelector"], labels)]
        denied = [each for each in own if "ingress" not in each and "egress" not in each]
        assert [each["policyTypes"] for each in denied] == [["Ingress", "Egress"]]
        opened = {port["port"] for each in own for rule in each.get("ingress", ()) for port in rule["ports"]}
        assert opened == {each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
        called = {port["port"] for each in own for rule in each.get("egress", ()) for port in rule["ports"]}
        environment = _environment(pod)
        wanted = {
            53,
            *(int(broker.rpartition(":")[2]) for broker in environment.get("DPUPLANE_KAFKA", "").split(",") if broker),
        }
        wanted |= {443, 6443} if _watches(pod) else set()
        reads_charts = environment.get("DPUPLANE_KUBERNETES_RESOURCES") == "true"
        wanted |= {80, 443} if role in ("all", "provisioner") or reads_charts else set()
        wanted |= {7082} if role in ("all", "api") else set()
        assert called - {4318} == wanted, role


def test_certificates_name_the_role_and_fill_the_mounted_secrets(tmp_path: Path) -> None:
    for chosen in (MANAGED, {**KAFKA, **MANAGED}):
        objects = render(chosen, tmp_path)
        certificates = {each["spec"]["secretName"]: each["spec"] for each in of_kind(objects, "Certificate")}
        mounted = {role: _volumes(pod)["tls"]["secret"]["secretName"] for role, pod in pods_of(objects)}
        assert certificates.keys() == set(mounted.values())
        for role, secret in mounted.items():
            (uri,) = certificates[secret]["uris"]
            assert parse_uri(uri, "example.org") == Principal("plane", f"{RELEASE}-{role}")
        agents = [
            _environment(pod).get("DPUPLANE_AGENTS") for role, pod in pods_of(objects) if role in ("all", "relay")
        ]
        assert agents == [
            f"pod-0.{RELEASE}-{role}.{NAMESPACE}.svc.cluster.local:7082" for role in mounted if role in ("all", "relay")
        ]
        for address in agents:
            wildcard = "*." + str(address).partition(".")[2].rpartition(":")[0]
            assert any(wildcard in each["dnsNames"] for each in certificates.values())


def test_an_embedded_log_has_a_volume_and_one_process(tmp_path: Path) -> None:
    (workload,) = of_kind(render(LAB, tmp_path), "Deployment", "StatefulSet")
    assert workload["kind"] == "StatefulSet"
    assert workload["spec"]["replicas"] == 1
    (claim,) = workload["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


@pytest.mark.parametrize("keep", [True, False])
def test_the_definitions_are_those_of_the_models(keep: bool, tmp_path: Path) -> None:
    objects = render({**LAB, "crds": {"keep": keep, "computeDomains": keep}}, tmp_path)
    rendered = of_kind(objects, "CustomResourceDefinition")
    admission = of_kind(objects, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    for each in rendered + admission:
        kept = each["metadata"].pop("annotations", {})
        assert kept == ({"helm.sh/resource-policy": "keep"} if keep else {})
    folders = ("crds", "upstream") if keep else ("crds",)
    files = [yaml.safe_load(path.read_text()) for folder in folders for path in (HERE / folder).glob("*.yaml")]
    assert sorted(rendered, key=_name) == sorted(files, key=_name)
    texts = [path.read_text() for path in sorted((HERE / "admission").glob("*.yaml"))]
    assert sorted(admission, key=_name) == sorted(
        (each for text in texts for each in yaml.safe_load_all(text)), key=_name
    )


@pytest.mark.parametrize("keep", [True, False])
def test_the_kinds_of_dpf_are_installed_on_request_and_kept(keep: bool, tmp_path: Path) -> None:
    objects = render({**LAB, "crds": {"keep": keep, "dpf": True}}, tmp_path)
    rendered = {_name(each): each for each in of_kind(objects, "CustomResourceDefinition")}
    files = [yaml.safe_load(path.read_text()) for path in (HERE / "crds" / "dpf").glob("*.yaml")]
    assert [rendered[_name(file)] for file in files] == files
    assert {file["metadata"]["annotations"]["helm.sh/resource-policy"] for file in files} == {"keep"}


def test_the_alerts_are_those_of_prometheus_with_your_runbook(tmp_path: Path) -> None:
    chosen = {**LAB, "prometheusRule": {"enabled": True, "runbook": "https://runbooks.example.org/dpuplane"}}
    (rule,) = of_kind(render(chosen, tmp_path), "PrometheusRule")
    text = ALERTS.read_text().replace("{{ $externalLabels.runbook }}", "https://runbooks.example.org/dpuplane")
    assert rule["spec"] == yaml.safe_load(text)
    assert "externalLabels" not in json.dumps(rule)


def test_prometheus_scrapes_every_process_under_the_labels_of_the_alerts(objects: list[Object]) -> None:
    for monitor in of_kind(objects, "ServiceMonitor"):
        (service,) = [
            each
            for each in of_kind(objects, "Service")
            if selects(monitor["spec"]["selector"], each["metadata"]["labels"])
        ]
        pods = [pod for _, pod in pods_of(objects)]
        assert all(selects(service["spec"]["selector"], pod["metadata"]["labels"]) for pod in pods)
        (endpoint,) = monitor["spec"]["endpoints"]
        labels = {each["targetLabel"]: each["replacement"] for each in endpoint["relabelings"]}
        assert labels == {"job": "dpuplane", "plane": RELEASE}
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["cert"]["secret"]["name"] in ("scrape", f"{RELEASE}-prometheus-tls")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({}, "tls.issuer.name: must name an issuer of cert-manager because tls.source is certManager"),
        ({"tls": {"issuer": {"name": "ca"}}}, "tls.trustDomain: must be given because tls.source is certManager"),
        ({"tls": {"source": "secret"}}, "tls.secretPrefix: must be given because tls.source is secret"),
        ({"tls": {"source": "none", "revoked": ["ab"]}}, "tls.revoked: needs tls.source certManager or secret"),
        ({**LAB, "log": "kafka"}, "kafka.brokers: must be HOST:PORT,... because log is kafka"),
        ({**LAB, "kafka": {"brokers": "a:1"}}, "kafka.brokers: must be empty because log is embedded"),
        (
            {**LAB, "log": "kafka", "kafka": {"brokers": "a:1", "securityProtocol": "SASL_SSL"}},
            "kafka.passwordSecret: must name a Secret because kafka.securityProtocol is SASL_SSL",
        ),
        (
            {**LAB, "log": "kafka", "kafka": {"brokers": "a:1", "securityProtocol": "SSL"}},
            "kafka.certificateSecretPrefix: must be given because kafka.securityProtocol is SSL",
        ),
        (
            {**SECRETS, "serviceMonitor": {"enabled": True}},
            "serviceMonitor.tlsSecret: must name a Secret because tls.source is secret",
        ),
        (
            {**LAB, "kubernetes": {"source": "east", "others": {"east": "s"}}},
            "kubernetes.others: 'east' is the name of this cluster, kubernetes.source",
        ),
        (
            {**LAB, "kubernetes": {"enabled": False, "others": {"east": "s"}}},
            "kubernetes.others: needs kubernetes.enabled",
        ),
        ({**LAB, "log": "kafak"}, "at '/log': value must be one of 'embedded', 'kafka'"),
        ({**LAB, "roles": {"api": {"replicas": 0}}}, "at '/roles/api/replicas': minimum: got 0, want 1"),
        ({**LAB, "roles": {"api": {"replica": 2}}}, "at '/roles/api': additional properties 'replica' not allowed"),
        ({**LAB, "kafka": {"brokers": "broker"}}, "at '/kafka/brokers': 'broker' does not match pattern"),
    ],
)
def test_wrong_values_are_refused_by_name(chosen: Values, message: str, tmp_path: Path) -> None:
    done = helm("template", RELEASE, str(CHART), values=chosen, folder=tmp_path)
    assert done.returncode
    assert message in done.stderr


def test_every_value_is_documented_and_in_the_schema() -> None:
    content = yaml.safe_load((CHART / "values.yaml").read_text())
    documented = {each.path for each in values()}
    undocumented = [path for path in _leaves(content) if not any(_within(path, each) for each in documented)]
    assert undocumented == []
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert _schema_paths(schema) - {"global"} == documented


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _environment(pod: Object) -> dict[str, str]:
    """The environment of a pod's process, in its pod with the name pod-0."""
    variables = pod["spec"]["containers"][0]["env"]
    return {each["name"]: each["value"].replace("$(POD_NAME)", "pod-0") for each in variables if "value" in each}


def _volumes(pod: Object) -> dict[str, Any]:
    return {each["name"]: each for each in pod["spec"]["volumes"]}


def _watches(pod: Object) -> bool:
    return "DPUPLANE_KUBECONFIG" in _environment(pod)


def _rights(role: Object) -> dict[tuple[str, str], list[str]]:
    """Verbs by API group and resource; each pair is in one rule only."""
    pairs = [
        ((group, resource), rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def _leaves(content: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in content.items():
        path = f"{prefix}{key}"
        found += _leaves(value, f"{path}.") if isinstance(value, Mapping) and value else [path]
    return found


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}.")


def _schema_paths(schema: Mapping[str, Any], prefix: str = "") -> set[str]:
    """The paths of single values; an object is one value if the schema refers to its definition."""
    found = set()
    for key, part in schema["properties"].items():
        found |= _schema_paths(part, f"{prefix}{key}.") if "properties" in part else {f"{prefix}{key}"}
    return found

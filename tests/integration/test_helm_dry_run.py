"""The Helm chart at a real API server: each object accepted in a dry run, rights in force, a release and its upgrade.

The server has neither cert-manager nor prometheus-operator. Of their kinds, helm lint and test_helm_chart.py check the
form, and nothing here does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from deploy.kubernetes.chart_values import CHART
from tests.support.kubernetes.chart import (
    CLUSTER_NAMESPACES,
    DRIVER_NAMESPACE,
    LAB,
    NAMESPACE,
    RELEASE,
    VALUE_SETS,
    Values,
    helm,
    of_kind,
    render,
)
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.requests import ESTABLISHED_S, create, create_namespace

ABSENT_KINDS = ("Certificate", "ServiceMonitor", "PrometheusRule")
EDGE = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-all"
RBAC_KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


HOSTS: Values = {**LAB, "hostAgent": {"enabled": True, "features": True}}


@pytest.mark.parametrize("chosen", [*VALUE_SETS.values(), HOSTS], ids=[*VALUE_SETS, "trusted hosts"])
async def test_the_server_accepts_every_object(cluster: Cluster, chosen: Values, tmp_path: Path) -> None:
    for namespace in (NAMESPACE, DRIVER_NAMESPACE, *CLUSTER_NAMESPACES):
        await create_namespace(cluster.api, namespace)
    sent = [each for each in render(chosen, tmp_path) if each["kind"] not in ABSENT_KINDS]
    output = await cluster.plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=yaml.safe_dump_all(sent)
    )
    answers = output.splitlines()
    assert len(answers) == len(sent)
    assert all(answer.endswith("(server dry run)") for answer in answers)


async def test_the_server_sees_no_deviation_from_the_restricted_standard(cluster: Cluster, tmp_path: Path) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    name = f"{cluster.prefix}-restricted"
    await create(cluster.api, "/api/v1/namespaces", {"metadata": {"name": name, "labels": label}})
    for workload in of_kind(render(VALUE_SETS["Kafka, lab"], tmp_path), "Deployment", "StatefulSet"):
        template = workload["spec"]["template"]
        template["spec"].pop("serviceAccountName")
        pod = {
            "metadata": {"generateName": "plane-", "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        }
        await create(cluster.api, f"/api/v1/namespaces/{name}/pods", pod)


async def test_the_rights_of_the_edge_are_in_force(cluster: Cluster, tmp_path: Path) -> None:
    for namespace in (NAMESPACE, DRIVER_NAMESPACE, *CLUSTER_NAMESPACES):
        await create_namespace(cluster.api, namespace)
    objects = render(VALUE_SETS["embedded, lab, cliques"], tmp_path)
    rights = [each for each in objects if each["kind"] in RBAC_KINDS]
    await cluster.plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(rights))
    for right in (
        ("watch", "", "nodes"),
        ("patch", "", "nodes"),
        ("watch", "", "pods"),
        ("create", "", "pods/eviction"),
        ("watch", "provisioning.dpu.nvidia.com", "dpusets"),
        ("patch", "provisioning.dpu.nvidia.com", "dpus/status"),
        ("create", "provisioning.dpu.nvidia.com", "dpus"),
        ("watch", "argoproj.io", "applications"),
        ("create", "", "events"),
        ("create", "dpuplane.io", "holds"),
        ("patch", "dpuplane.io", "holds/status"),
        ("update", "resource.nvidia.com", "computedomains/status"),
    ):
        await _until_may(cluster, *right)
    for right in (("watch", "", "pods"), ("update", "resource.nvidia.com", "computedomaincliques")):
        await _until_may(cluster, *right, namespace=DRIVER_NAMESPACE)
    assert not await _may(cluster, "update", "resource.nvidia.com", "computedomaincliques")
    for namespace in CLUSTER_NAMESPACES:
        for verb in ("get", "list", "watch", "create", "patch", "delete"):
            await _until_may(cluster, verb, "", "secrets", namespace=namespace)
        assert not await _may(cluster, "update", "", "secrets", namespace=namespace)
    for right in (
        ("create", "provisioning.dpu.nvidia.com", "bfbs"),
        ("update", "provisioning.dpu.nvidia.com", "bfbs"),
        ("delete", "svc.dpu.nvidia.com", "dpudeployments"),
        ("patch", "dpuplane.io", "holds"),
        ("update", "dpuplane.io", "holds"),
        ("update", "dpuplane.io", "dpuracks"),
        ("create", "dpuplane.io", "rulepolicies"),
        ("patch", "dpuplane.io", "rulepolicies"),
        ("get", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("update", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("update", "", "nodes"),
        ("delete", "", "nodes"),
        ("get", "", "secrets"),
        ("watch", "", "secrets"),
        ("create", "", "pods"),
        ("delete", "", "pods"),
        ("impersonate", "", "users"),
        ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ):
        assert not await _may(cluster, *right), right
    await cluster.plane.kubectl("delete", "--filename=-", stdin=yaml.safe_dump_all(rights))


async def test_a_release_is_installed_upgraded_and_uninstalled(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """Helm's own sequence, without controllers: no pod starts. The definitions and the policy stay (`crds.keep`)."""

    async def run(*arguments: str, values: Values) -> str:
        kubeconfig = own_control_plane.kubeconfig()
        done = await asyncio.to_thread(helm, *arguments, values=values, folder=tmp_path, kubeconfig=kubeconfig)
        assert not done.returncode, done.stderr
        return done.stdout

    lab, kafka = VALUE_SETS["embedded, lab, cliques"], VALUE_SETS["Kafka, lab"]
    kubectl = own_control_plane.kubectl
    for namespace in (DRIVER_NAMESPACE, *CLUSTER_NAMESPACES):
        await kubectl("create", "namespace", namespace)
    notes = await run("install", RELEASE, str(CHART), "--create-namespace", values=lab)
    assert "use this plane in a lab only" in notes
    assert (await kubectl("get", "deploy,sts", "--namespace", NAMESPACE, "--output=name")).split() == [
        "statefulset.apps/plane-all"
    ]
    await run("upgrade", RELEASE, str(CHART), values=kafka)
    assert len((await kubectl("get", "deploy,sts", "--namespace", NAMESPACE, "--output=name")).split()) == 5
    await run("uninstall", RELEASE, values={})
    assert await kubectl("get", "all,roles", "--all-namespaces", "--selector=app.kubernetes.io/name=dpuplane") == ""
    assert "dpuracks.dpuplane.io" in await kubectl("get", "crds", "--output=name")
    policies = await kubectl("get", "validatingadmissionpolicies,mutatingadmissionpolicies", "--output=name")
    assert policies.split() == [
        "validatingadmissionpolicy.admissionregistration.k8s.io/authors.dpuplane.io",
        "validatingadmissionpolicy.admissionregistration.k8s.io/verdicts.holds.dpuplane.io",
        "mutatingadmissionpolicy.admissionregistration.k8s.io/authors.dpuplane.io",
    ]


async def _until_may(cluster: Cluster, verb: str, group: str, resource: str, *, namespace: str = NAMESPACE) -> None:
    """Wait until the edge has a right: the API server learns of new bindings by a watch."""
    try:
        async with asyncio.timeout(ESTABLISHED_S):
            while not await _may(cluster, verb, group, resource, namespace=namespace):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"no right to {verb} {resource} of {group!r} in {namespace}") from None


async def _may(cluster: Cluster, verb: str, group: str, resource: str, namespace: str = NAMESPACE) -> bool:
    name, _, subresource = resource.partition("/")
    about = {"verb": verb, "group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    review = {"spec": {"user": EDGE, "resourceAttributes": about}}
    answer = await create(cluster.api, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])

"""Two clusters keep DPUs apart from hosts: what the accounts of a source cluster can do about DPUs, and the rights with
which the plane reads objects.

The rights are those that the chart gives. `dpf_crds` installs DPF's own definitions of release 24.10 instead of ours.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands.kubernetes.resource_edge import STATED_KINDS
from drivers.kubernetes.client import connect
from schemas.kubernetes.api import ApiError
from schemas.resources.dpf.cluster import DPU_CLUSTER
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.images import BFB_KIND
from tests.integration.test_kubernetes_resources import (
    NAMESPACE,
    PATIENCE_S,
    SECRETS,
    SOURCE,
    Site,
    install_ours,
    kubeconfig_secret,
    resource_key,
)
from tests.support.dpf_manifests import OLD, manifests
from tests.support.kubernetes import chart
from tests.support.kubernetes.chart import LAB, render
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import DPF_CRDS
from tests.support.kubernetes.requests import create, create_namespace, get, install

HOST_AGENT = "system:serviceaccount:hosts:agent"
HOST_NODE = "system:node:host-1"


def edge_objects(folder: Path) -> list[Any]:
    """The roles and bindings of the edge, as the chart writes them."""
    values = {**LAB, "kubernetes": {"resources": {"enabled": True, "namespaces": [NAMESPACE]}}}
    kinds = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ServiceAccount")
    return [each for each in render(values, folder) if each["kind"] in kinds]


def theirs() -> list[Any]:
    """DPF's definitions of release 24.10."""
    documents = [yaml.safe_load(path.read_text()) for path in sorted(Path(os.environ[DPF_CRDS]).glob("*.yaml"))]
    for document in documents:
        document["spec"].pop("conversion", None)  # it names a webhook that one version never calls
    return documents


@pytest.fixture
async def site(own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """A source cluster with the rights of the chart, where the plane has nothing but the token of its account."""
    async with connect(str(own_control_plane.kubeconfig())) as api:
        for namespace in (NAMESPACE, "hosts", chart.NAMESPACE):
            await create_namespace(api, namespace)
        yield Site(own_control_plane, api, tmp_path)


async def may(site: Site, user: str, verb: str, group: str, resource: str) -> bool:
    """Whether the API server allows a request of this user in DPF's namespace, for every object of the kind."""
    plural, _, subresource = resource.partition("/")
    about = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    groups = ["system:authenticated"]
    groups += ["system:nodes"] if user.startswith("system:node:") else ["system:serviceaccounts"]
    review = {"spec": {"user": user, "groups": groups, "resourceAttributes": {**about, "namespace": NAMESPACE}}}
    answer = await create(site.api, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def apply_chart(site: Site) -> str:
    """Apply the rights of the chart; returns the user of the edge once the API server knows its rights."""
    objects = edge_objects(site.folder)
    await site.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))
    binding = next(each for each in objects if each["kind"].endswith("RoleBinding"))
    (subject,) = binding["subjects"]
    user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    async with asyncio.timeout(PATIENCE_S):
        while not (
            await may(site, user, "get", "", "secrets")
            and await may(site, user, "watch", DPU_KIND.group, DPU_KIND.plural)
        ):
            await asyncio.sleep(0.05)
    return user


async def test_hosts_can_read_and_change_nothing_about_dpus(site: Site) -> None:
    """The accounts of a host, its kubelet's and that of a pod on it, against what the plane's account may do."""
    plane = await apply_chart(site)
    await create(site.api, SECRETS, kubeconfig_secret("secret"))
    assert await may(site, plane, "get", "", "secrets")
    assert await may(site, plane, "watch", DPU_KIND.group, DPU_KIND.plural)
    for user in (HOST_AGENT, HOST_NODE):
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
            assert not await may(site, user, verb, "", "secrets"), (user, verb)
            for kind in STATED_KINDS:
                assert not await may(site, user, verb, kind.group, kind.plural), (user, verb, kind.name)
        for kind in (DPU_KIND, DPU_CLUSTER):
            assert not await may(site, user, "patch", kind.group, f"{kind.plural}/status"), (user, kind.name)


async def test_the_token_of_a_pod_on_a_host_is_refused(site: Site, tmp_path: Path) -> None:
    """A real token of a service account, against real objects."""
    await install_ours(site.api)
    await apply_chart(site)
    await create(site.api, SECRETS, kubeconfig_secret("secret"))
    await site.apply(DPU_CLUSTER, "dpus", {"type": "static", "maxNodes": 1, "kubeconfig": "dpu-kubeconfig"})
    accounts = "/api/v1/namespaces/hosts/serviceaccounts"
    await create(site.api, accounts, {"metadata": {"name": "agent"}})
    request = {"spec": {"expirationSeconds": 600}}
    token = (await create(site.api, f"{accounts}/agent/token", request))["status"]["token"]
    path = tmp_path / "host.kubeconfig"
    config = yaml.safe_load(site.cluster.kubeconfig().read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))
    async with connect(str(path)) as host:
        assert "kind" in await get(host, "/apis")  # the token is valid
        for refused in (
            host.get(f"{SECRETS}/dpu-kubeconfig"),
            host.get(SECRETS),
            host.get(DPU_CLUSTER.path(NAMESPACE, "dpus")),
            host.get(DPU_KIND.path()),
            host.create(BFB_KIND.path(NAMESPACE), {"metadata": {"name": "a"}, "spec": {"url": "http://x/a.bfb"}}),
            host.patch(DPU_CLUSTER.path(NAMESPACE, "dpus"), {"spec": {"maxNodes": 2}}, "merge"),
            host.patch(DPU_CLUSTER.path(NAMESPACE, "dpus", "status"), {"status": {"phase": "Failed"}}, "merge"),
        ):
            with pytest.raises(ApiError) as error:
                await refused
            assert error.value.status == 403


@pytest.mark.dpf_crds
async def test_objects_under_the_definitions_of_release_24_10_are_stated(site: Site) -> None:
    """Their definitions stay as they are; kinds that they lack are looked for and say nothing."""
    documents = theirs()
    await install(site.api, *documents)
    served = {document["spec"]["names"]["kind"] for document in documents}
    stated: dict[str, Mapping[str, Any]] = {}
    for each in manifests(OLD):
        if each.kind.name not in served or each.kind not in STATED_KINDS:
            continue
        body = {**each.manifest, "metadata": {**each.manifest["metadata"], "namespace": NAMESPACE}}
        try:
            created = await create(site.api, each.kind.path(NAMESPACE), body)
        except ApiError as error:
            assert error.reason in ("AlreadyExists", "Invalid"), error
            continue
        stated[resource_key(each.kind, created["metadata"]["name"])] = created
    assert len({key.split("/")[1] for key in stated}) >= 10
    labels = {"feature.node.kubernetes.io/dpu-0-pci-address": "0000-03-00"}
    await create(site.api, "/api/v1/nodes", {"metadata": {"name": "host-1", "labels": labels}})
    await create(site.api, "/api/v1/nodes", {"metadata": {"name": "plain"}})
    async with site.plane() as watching:
        await watching.settled()
        host = f"{SOURCE}/Node.core//host-1"
        await watching.until(lambda: set(watching.state.objects.rows) == {*stated, host})
        for key, given in stated.items():
            row = watching.state.objects.rows[key]
            assert row.uid == given["metadata"]["uid"]
            assert yaml.safe_load(row.spec) == given.get("spec", {})
        assert {"dpunodes", "dpudevices"} <= {kind.plural for kind in watching.edges.kinds.missing}
        await watching.quiet()

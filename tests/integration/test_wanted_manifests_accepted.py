"""What the plane wants is accepted by a real API server with the definitions of DPF and of the other projects.

Every wanted object is applied in a dry run, with strict validation of its fields.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drivers.kubernetes.client import connect
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.kubernetes.resources.manifests import FIELD_MANAGER, manifest
from projections.kubernetes.resources.protection import FINALIZERS
from projections.resources import kinds
from projections.resources.state import ObjectId, Observed, Resource, ResourcesState
from projections.resources.wanted import Wanted
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from tests.support.deployments import deployment, parts
from tests.support.derivations import NAMESPACE, SOURCE, full, key, row
from tests.support.dpf_manifests import manifests
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import THIRD_PARTY_CRDS
from tests.support.kubernetes.requests import create_namespace, install

DRY_RUN = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All", "fieldValidation": "Strict"}
HOSTED = {
    "type": "kamaji",
    "maxNodes": 10,
    "clusterEndpoint": {"keepalived": {"vip": "10.0.0.9", "virtualRouterID": 7, "interface": "br0"}},
}
EXPECTED = {
    kinds.DPU,
    kinds.DPU_SET,
    kinds.DPU_SERVICE,
    kinds.DPU_SERVICE_CHAIN,
    kinds.DPU_SERVICE_INTERFACE,
    kinds.SERVICE_CHAIN_SET,
    kinds.SERVICE_INTERFACE_SET,
    kinds.IP_POOL,
    kinds.CIDR_POOL,
    kinds.NETWORK_ATTACHMENT,
    kinds.APPLICATION,
    kinds.APP_PROJECT,
    kinds.SECRET,
    kinds.NAMESPACE,
    kinds.SERVICE,
    kinds.TENANT_CONTROL_PLANE,
    kinds.DAEMON_SET,
    kinds.CONFIG_MAP,
}
"""Kinds of which at least one object must be wanted, so that its form is checked."""


CHAIN = {"template": {"spec": {"switches": [{"ports": [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}]}]}}}
INTERFACE = {"template": {"spec": {"interfaceType": "physical", "physical": {"interfaceName": "p0"}}}}
SUBNET = {"subnet": "10.1.0.0/16", "gateway": "10.1.0.1", "perNodeIPCount": 8}
NETWORK = {"network": "10.2.0.0/16", "gatewayIndex": 1, "prefixSize": 24, "exclusions": ["10.2.0.7"]}
CHART = {"source": {"repoURL": "oci://charts.example.org", "chart": "fw", "version": "1.0.0"}, "values": {"a": [1]}}
EVERYWHERE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (kinds.DPU_CLUSTER, "hosted", HOSTED),
    (kinds.DPU_CLUSTER, "given", {"type": "static", "kubeconfig": "given-kubeconfig"}),
    (kinds.DPU_SERVICE_CHAIN, "chain", {"template": {"spec": CHAIN}}),
    (kinds.DPU_SERVICE_INTERFACE, "p0", {"template": {"spec": INTERFACE}}),
    (kinds.DPU_SERVICE_IPAM, "subnet", {"ipv4Subnet": SUBNET}),
    (kinds.DPU_SERVICE_IPAM, "network", {"ipv4Network": NETWORK}),
    (kinds.DPU_SERVICE_NAD, "net", {"resourceType": "sf", "ipam": True, "serviceMTU": 1500}),
    (kinds.DPU_SERVICE, "fw", {"helmChart": CHART, "serviceID": "fw"}),
    (kinds.DPU_SERVICE, "local", {"helmChart": CHART, "deployInCluster": True}),
)
"""Objects for every DPU cluster."""


def rows() -> Iterator[tuple[str, Resource]]:
    """A DPUDeployment with all that it needs, objects for every DPU cluster, and the manifests of users."""
    yield from {**parts(), key(kinds.DPU_DEPLOYMENT, "dep"): deployment()}.items()
    for kind, name, spec in EVERYWHERE:
        yield ObjectId(SOURCE, kind, NAMESPACE, name).key, row(spec)
    for each in manifests("current"):
        meta = each.manifest["metadata"]
        at = ObjectId(SOURCE, f"{each.kind.name}.{each.kind.group}", meta.get("namespace", ""), meta["name"])
        annotations = meta.get("annotations") or {}
        yield at.key, row(each.manifest.get("spec"), labels=meta.get("labels"), annotations=annotations)


def wanted_objects() -> list[Wanted]:
    state = ResourcesState()
    state.apply(dict(rows()))
    service = ObjectId(SOURCE, kinds.SERVICE, NAMESPACE, "hosted").key
    state.observe({service: Observed("", json.dumps({"ready": True, "nodePort": 30_443}), "test", 1, 0)})
    return [*full(state).wanted()]


def document(wanted: Wanted) -> dict[str, Any]:
    content = {"type": "Opaque", "data": {"name": "YQ=="}} if wanted.secret is not None else None
    return manifest(wanted, finalizers=FINALIZERS.get(wanted.at.kind, ()), content=content)


async def applied(api: KubernetesApi, wanted: Wanted) -> str:
    """Why the server refuses a wanted object; empty if it accepts it."""
    at = wanted.at
    try:
        await api.patch(API_KINDS[at.kind].path(at.namespace, at.name), document(wanted), "apply", DRY_RUN)
    except ApiError as error:
        return f"{at.kind} {at.namespace}/{at.name}: {error}"
    return ""


def others() -> list[dict[str, Any]]:
    """The definitions of the other projects."""
    paths = sorted(Path(os.environ[THIRD_PARTY_CRDS]).glob("*.yaml"))
    return [each for path in paths for each in yaml.safe_load_all(path.read_text()) if each]


@pytest.mark.third_party_crds
async def test_the_server_accepts_every_wanted_object(own_control_plane: ControlPlane) -> None:
    found = wanted_objects()
    counts = Counter(each.at.kind for each in found)
    assert EXPECTED - set(counts) == set()
    async with connect(str(own_control_plane.kubeconfig())) as api:
        await install(api, *map(definition, KINDS), *others())
        for namespace in sorted({each.at.namespace for each in found if each.at.namespace}):
            await create_namespace(api, namespace)
        refused = [fault for each in found if (fault := await applied(api, each))]
    assert refused == []


def test_every_wanted_kind_is_known_to_the_writer() -> None:
    assert {each.at.kind for each in wanted_objects()} <= set(API_KINDS)

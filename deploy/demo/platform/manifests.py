"""The manifests of the platform demo: hosts in racks, images, a DPUSet, and a DPUDeployment of three services."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from drivers.simulators.bmc_network import BmcNetwork, NetworkSizes, SimulatedDpu
from projections.resources import kinds
from schemas.api import dpuplane_pb2 as pb

NAMESPACE = "dpf"
RACK = "topology.kubernetes.io/rack"
FIRST_IMAGE, SECOND_IMAGE = "bf-bundle-3.0", "bf-bundle-3.1"
FLAVOR = "hbn"
CLUSTER = "dpu-cluster"
SET = "storage"
DEPLOYMENT = "fabric"
DISCOVERY = "racks"
SERVICES = ("hbn", "telemetry", "firewall")
POOL = {"pool": "loopbacks"}
WAVES = "1,25%,100%"
BAKE = "1s"
FAILURE_BUDGET = "0"
_CHARTS = "https://charts.example.org"


class Object(NamedTuple):
    """An object of the demo."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

    @property
    def message(self) -> pb.ResourceSpec:
        return pb.ResourceSpec(
            kind=self.kind,
            namespace=NAMESPACE,
            name=self.name,
            labels=self.labels,
            annotations=self.annotations,
            spec=json.dumps(self.spec),
        )

    @property
    def document(self) -> dict[str, Any]:
        """The object as a manifest."""
        name, _, group = self.kind.partition(".")
        metadata: dict[str, Any] = {"name": self.name, "namespace": NAMESPACE}
        metadata |= {"labels": dict(self.labels)} if self.labels else {}
        metadata |= {"annotations": dict(self.annotations)} if self.annotations else {}
        return {"apiVersion": f"{group}/v1alpha1", "kind": name, "metadata": metadata, "spec": self.spec}


def rack_name(rack: int) -> str:
    return f"rack-{rack}"


def host_name(dpu: SimulatedDpu) -> str:
    return f"{rack_name(dpu.rack)}-host-{dpu.host:02}"


def dpu_name(dpu: SimulatedDpu) -> str:
    """The name of the DPU that the plane derives for a device."""
    return f"{host_name(dpu)}-{dpu.serial.lower()}"


def discovery(sizes: NetworkSizes) -> Object:
    """A search of the networks of all racks."""
    addresses = {"startIP": "198.18.1.0", "endIP": f"198.18.{sizes.racks}.255"}
    return Object(kinds.DPU_DISCOVERY, DISCOVERY, {"ipRangeSpec": {"ipRange": addresses}, "workers": 100})


def hosts(network: BmcNetwork, sizes: NetworkSizes) -> list[Object]:
    """All hosts, also those without DPUs."""
    devices: dict[tuple[int, int], list[str]] = {}
    for dpu in network.dpus():
        devices.setdefault((dpu.rack, dpu.host), []).append(dpu.serial.lower())
    found = []
    for rack in range(1, sizes.racks + 1):
        for host in range(1, sizes.hosts_per_rack + 1):
            spec: dict[str, Any] = {"nodeRebootMethod": {"hostAgent": {}}}
            if names := devices.get((rack, host)):
                spec["dpus"] = [{"name": name} for name in names]
            name = host_name(SimulatedDpu(rack, host, 0))
            found.append(Object(kinds.DPU_NODE, name, spec, {RACK: rack_name(rack)}))
    return found


def foundations(image_url: str) -> list[Object]:
    """Images, a flavor and a DPU cluster. `image_url` has a place for the name of an image."""
    flavor = {
        "dpuMode": "dpu",
        "grub": {"kernelParameters": ["console=hvc0", "hugepagesz=2048kB", "hugepages=3072"]},
        "nvconfig": [{"device": "*", "parameters": ["PF_TOTAL_SF=20", "NUM_OF_VFS=16"]}],
        "dpuResources": {"cpu": 16, "memory": "16Gi"},
        "systemReservedResources": {"cpu": 4, "memory": "6Gi"},
    }
    return [
        *(Object(kinds.BFB, name, {"url": image_url.format(name)}) for name in (FIRST_IMAGE, SECOND_IMAGE)),
        Object(kinds.DPU_FLAVOR, FLAVOR, flavor),
        Object(
            kinds.DPU_CLUSTER, CLUSTER, {"type": "static", "kubeconfig": "dpu-cluster-kubeconfig", "maxNodes": 1000}
        ),
    ]


def dpu_set(image: str) -> Object:
    """The DPUs of the first rack."""
    template = {"bfb": {"name": image}, "dpuFlavor": FLAVOR, "nodeEffect": {"drain": True}}
    spec = {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}},
        "dpuNodeSelector": {"matchLabels": {RACK: rack_name(1)}},
        "dpuTemplate": {"spec": template},
    }
    return Object(kinds.DPU_SET, SET, spec)


def services() -> list[Object]:
    """What the deployment refers to: templates and configurations of services, uplinks, a network, and addresses."""
    found = []
    for number, name in enumerate(SERVICES, 1):
        source = {"repoURL": _CHARTS, "chart": name, "version": f"1.{number}.0"}
        needs = {"cpu": "1", "memory": "1Gi"}
        template = {"deploymentServiceName": name, "helmChart": {"source": source}, "resourceRequirements": needs}
        found.append(Object(kinds.DPU_SERVICE_TEMPLATE, name, template))
        configuration: dict[str, Any] = {
            "deploymentServiceName": name,
            "serviceConfiguration": {"helmChart": {"values": {"logLevel": "info"}}},
        }
        if name != "telemetry":
            configuration["interfaces"] = [{"name": "p0_if", "network": "mybrhbn"}]
        found.append(Object(kinds.DPU_SERVICE_CONFIGURATION, name, configuration))
    uplink = {"interfaceType": "physical", "physical": {"interfaceName": "p0"}}
    interface = {"template": {"metadata": {"labels": {"uplink": "p0"}}, "spec": uplink}}
    subnet = {"subnet": "10.20.0.0/16", "gateway": "10.20.0.1", "perNodeIPCount": 8}
    return [
        *found,
        Object(kinds.DPU_SERVICE_INTERFACE, "p0", {"template": {"spec": interface}}),
        Object(kinds.DPU_SERVICE_NAD, "mybrhbn", {"resourceType": "sf", "bridge": "br-hbn"}),
        Object(kinds.DPU_SERVICE_IPAM, "loopbacks", {"metadata": {"labels": POOL}, "ipv4Subnet": subnet}),
    ]


def deployment(image: str, racks: Sequence[int]) -> Object:
    """The DPUs of the other racks, with three services, two of which are in a chain behind the uplink."""
    switches = [
        {"ports": [{"serviceInterface": {"matchLabels": {"uplink": "p0"}}}, _port("hbn")]},
        {"ports": [_port("firewall")]},
    ]
    selector = {"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack_name(rack) for rack in racks]}]}
    spec = {
        "dpus": {
            "bfb": image,
            "flavor": FLAVOR,
            "nodeEffect": {"drain": True},
            "dpuSetStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "dpuSets": [{"nameSuffix": "racks", "dpuNodeSelector": selector}],
        },
        "services": {
            name: {"serviceTemplate": name, "serviceConfiguration": name}
            | ({"dependsOn": [{"name": "hbn"}]} if name == "firewall" else {})
            for name in SERVICES
        },
        "serviceChains": {"switches": switches},
    }
    annotations = {
        "dpuplane.io/rollout-waves": WAVES,
        "dpuplane.io/rollout-bake-time": BAKE,
        "dpuplane.io/rollout-failure-budget": FAILURE_BUDGET,
    }
    return Object(kinds.DPU_DEPLOYMENT, DEPLOYMENT, spec, annotations=annotations)


def apply(objects: Iterable[Object]) -> pb.ApplyResourcesRequest:
    return pb.ApplyResourcesRequest(resources=[each.message for each in objects])


def delete(objects: Iterable[Object]) -> pb.DeleteResourcesRequest:
    names = (pb.ResourceName(kind=each.kind, namespace=NAMESPACE, name=each.name) for each in objects)
    return pb.DeleteResourcesRequest(resources=names)


def _port(service: str) -> dict[str, Any]:
    return {"service": {"name": service, "interface": "p0_if", "ipam": {"matchLabels": POOL}}}

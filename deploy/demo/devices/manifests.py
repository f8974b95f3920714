"""The manifests of the device demo: hosts with a DPU each, images, a DPUSet, and a chain of two services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deploy.demo.platform.manifests import CLUSTER, FLAVOR, RACK, Object
from projections.resources import kinds

FIRST_IMAGE, SECOND_IMAGE = "bf-bundle-3.0", "bf-bundle-3.1"
VERSIONS = {FIRST_IMAGE: "3.0.0", SECOND_IMAGE: "3.1.0"}
SET, REFLASHED_SET = "fleet", "reflashed"
CHAIN = "inspection"
ROUTER, FIREWALL = "router", "firewall"
"""The services of the chain. Each has one interface, whose name is also that of the service."""
DPUS_PER_RACK = 10
_REFLASHED = "demo.dpuplane.io/reflashed"


def inventory_of(version: str) -> dict[str, str]:
    """The versions in the inventory of an image. A card reports those that it runs."""
    return {"DOCA": version, "BSP": "4.11.0"}


class DemoDpu(NamedTuple):
    """A DPU of the demo by its number, which begins with 1."""

    number: int

    @property
    def rack(self) -> str:
        return f"rack-{(self.number - 1) // DPUS_PER_RACK + 1}"

    @property
    def host(self) -> str:
        return f"host-{self.number:02}"

    @property
    def serial(self) -> str:
        return f"MT2600DM{self.number:04}"

    @property
    def device(self) -> str:
        return self.serial.lower()

    @property
    def name(self) -> str:
        """The name that the plane derives for the DPU."""
        return f"{self.host}-{self.device}"


def hosts(dpus: Sequence[DemoDpu], *, reflashed: DemoDpu | None = None) -> list[Object]:
    """A DPUNode for each DPU. The DPU restarts itself: its host is not part of the demo."""
    return [
        Object(
            kinds.DPU_NODE,
            dpu.host,
            {"nodeRebootMethod": {"none": {}}, "dpus": [{"name": dpu.device}]},
            {RACK: dpu.rack, _REFLASHED: "yes" if dpu == reflashed else "no"},
        )
        for dpu in dpus
    ]


def devices(addresses: Mapping[DemoDpu, tuple[str, int]]) -> list[Object]:
    """A DPUDevice for each DPU, with the address and port of its BMC."""
    return [
        Object(kinds.DPU_DEVICE, dpu.device, {"serialNumber": dpu.serial, "bmcIp": host, "bmcPort": port})
        for dpu, (host, port) in addresses.items()
    ]


def foundations(image_url: str) -> list[Object]:
    """Images, a flavor and a DPU cluster. `image_url` has a place for the name of an image."""
    cluster = {"type": "static", "kubeconfig": "dpu-cluster-kubeconfig", "maxNodes": 1000}
    return [
        *(Object(kinds.BFB, name, {"url": image_url.format(name)}) for name in VERSIONS),
        Object(kinds.DPU_FLAVOR, FLAVOR, {"dpuMode": "dpu"}),
        Object(kinds.DPU_CLUSTER, CLUSTER, cluster),
    ]


def dpu_sets(dpus: int) -> list[Object]:
    """A DPUSet of all DPUs but the one that is reflashed, and one of that."""
    return [_dpu_set(SET, FIRST_IMAGE, "no", dpus), _dpu_set(REFLASHED_SET, FIRST_IMAGE, "yes", 1)]


def reflash() -> Object:
    """The DPUSet of one DPU, with the second image."""
    return _dpu_set(REFLASHED_SET, SECOND_IMAGE, "yes", 1)


def _dpu_set(name: str, image: str, reflashed: str, at_once: int) -> Object:
    template = {"bfb": {"name": image}, "dpuFlavor": FLAVOR, "nodeEffect": {"noEffect": True}}
    spec = {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": at_once}},
        "dpuNodeSelector": {"matchLabels": {_REFLASHED: reflashed}},
        "dpuTemplate": {"spec": template},
    }
    return Object(kinds.DPU_SET, name, spec)


def chain() -> list[Object]:
    """Two services on every DPU, and the chain that connects them."""
    found = []
    for service in (ROUTER, FIREWALL):
        end = {"serviceID": service, "network": "mybrsfc", "interfaceName": service}
        interface = {"interfaceType": "service", "service": end}
        template = {"template": {"metadata": {"labels": {"service": service}}, "spec": interface}}
        found.append(Object(kinds.DPU_SERVICE_INTERFACE, service, {"template": {"spec": template}}))
    ports = [{"serviceInterface": {"matchLabels": {"service": service}}} for service in (ROUTER, FIREWALL)]
    spec = {"template": {"spec": {"template": {"spec": {"switches": [{"ports": ports}]}}}}}
    return [*found, Object(kinds.DPU_SERVICE_CHAIN, CHAIN, spec)]


def pod_interface(service: str, dpu: DemoDpu) -> dict[str, Any]:
    """The external ids by which the CNI plugin marks the port of a pod."""
    return {"dpf-id": f"dpf/{service}-{dpu.number:02}/{service}"}

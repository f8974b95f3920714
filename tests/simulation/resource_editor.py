"""Users of custom resources in a simulation: random edits of the objects of a few hosts, their DPUs and DPUSets.

Hosts change racks and pools, devices come and go, DPUSets change their image, are deleted and made anew, and images are
reported as downloaded and as broken. Interfaces and chains change, and so does the DPU cluster that they are for. There
are few names, so that edits conflict: a host moves while its DPU is installed, two DPUSets select one device. Every
DPUSet drains the hosts of its DPUs. Rollouts are paused, resumed and undone, and DPUs are deleted so that they get the
wanted image at once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES, Partition, partition_of
from projections.resources import kinds
from projections.resources.handover import BMC_ADDRESS, ZONE_LABEL
from projections.resources.rollouts.requests import PAUSE, RESUME, UNDO
from projections.resources.rollouts.strategy import BAKE_TIME, WAVES
from projections.resources.state import LOCAL, ObjectId
from schemas import events as e
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.simulation.clients import Client
from tests.simulation.plan import PARTITIONS
from tests.simulation.process import Process
from tests.simulation.script import Director
from tests.simulation.workload import Request

NAME = "editor"
NAMESPACE = "dpf"
HOSTS: Mapping[str, Sequence[str]] = {"h0": ("d0", "d1"), "h1": ("d2",), "h2": ("d3",), "h3": ("d4",)}
"""The devices of each host."""
IMAGES = ("image-1", "image-2", "image-3")
SERVICES = ("service-a", "service-b")
VERSIONS = ("1.0.0", "1.1.0", "2.0.0")
CLUSTER = "cluster"
CLUSTER_VERSIONS = ("v1.33.1", "v1.34.0", "v1.34.0")
KEEPALIVED = {"vip": "198.18.0.1", "virtualRouterID": 7, "interface": "eth0"}
PORTS = ("port-a", "port-b", "port-c")
"""The DPUServiceInterfaces. Each is labelled with its name."""
CHAINS = ("chain-a", "chain-b")
SETS = ("set-a", "set-b")
"""Each DPUSet selects the hosts whose label `pool` is the last letter of its name."""
FLAVOR = "flavor"

EDITS = {
    "host": 4,
    "device": 3,
    "remove_device": 1,
    "remove_host": 0.3,
    "set": 6,
    "remove_set": 1,
    "image": 3,
    "request": 2,
    "remove_dpu": 0.5,
    "service": 3,
    "remove_service": 1,
    "cluster": 1.5,
    "remove_cluster": 0.4,
    "interface": 2,
    "remove_interface": 0.5,
    "chain": 2,
    "remove_chain": 0.5,
}
"""The relative frequency of each kind of edit."""
EVERYTHING = "everything"
"""The first edit: every object is made."""


def devices() -> list[str]:
    """The names of all DPUs."""
    return [f"{host}-{device}" for host, found in HOSTS.items() for device in found]


class ResourceEditor:
    """The users of the objects of one plane. `client` sends their edits."""

    def __init__(
        self,
        client: Client,
        processes: Sequence[Process],
        zones: Sequence[str],
        now_ms: Callable[[], int],
        pause_s: float,
    ) -> None:
        self._client = client
        self._processes = processes
        self._zones = zones
        self._now_ms = now_ms
        self._pause_s = pause_s
        self._rng = random.Random(0)
        self._has_begun = False

    async def run(self, director: Director, seed: int) -> None:
        """Make every object, then edit them until cancelled."""
        async for action in director.actions(NAME, self._draw):
            self._rng = action.rng(seed)
            edits = self._edits(action.what)
            process = self._rng.choice(self._processes)
            for event in edits:
                if process.instance is not None and process.instance.is_up:
                    partition = Partition(RESOURCES, partition_of(LOCAL.encode(), PARTITIONS))
                    await self._client.send(Request(partition, LOCAL.encode(), event), process)
            action.description = f"{action.what} {[type(event).__name__ for event in edits]}"

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        what = rng.choices(list(EDITS), list(EDITS.values()))[0] if self._has_begun else EVERYTHING
        self._has_begun = True
        return rng.expovariate(1 / self._pause_s), what

    def _edits(self, what: str) -> list[e.Event]:
        rng = self._rng
        host = rng.choice(list(HOSTS))
        match what:
            case "everything":
                hosts = [event for name in HOSTS for event in self._host(name)]
                sets = [event for name in SETS for event in self._set(name)]
                networks = [*map(self._interface, PORTS), *map(self._chain, CHAINS)]
                return [*hosts, *sets, *map(self._service, SERVICES), self._cluster(), *networks]
            case "host":
                return self._host(host)
            case "device":
                return [self._device(host, device) for device in HOSTS[host]]
            case "remove_device":
                return [self._deleted(kinds.DPU_DEVICE, rng.choice(HOSTS[host]))]
            case "remove_host":
                return [self._deleted(kinds.DPU_NODE, host)]
            case "set":
                return self._set(rng.choice(SETS))
            case "remove_set":
                return [self._deleted(kinds.DPU_SET, rng.choice(SETS))]
            case "image":
                return [self._image(rng.choice(IMAGES), is_ready=rng.random() < 0.8)]
            case "request":
                return [self._request(rng.choice(SETS))]
            case "service":
                return [self._service(rng.choice(SERVICES))]
            case "remove_service":
                return [self._deleted(kinds.DPU_SERVICE, rng.choice(SERVICES))]
            case "cluster":
                return [self._cluster()]
            case "remove_cluster":
                return [self._deleted(kinds.DPU_CLUSTER, CLUSTER)]
            case "interface":
                return [self._interface(rng.choice(PORTS))]
            case "remove_interface":
                return [self._deleted(kinds.DPU_SERVICE_INTERFACE, rng.choice(PORTS))]
            case "chain":
                return [self._chain(rng.choice(CHAINS))]
            case "remove_chain":
                return [self._deleted(kinds.DPU_SERVICE_CHAIN, rng.choice(CHAINS))]
            case "remove_dpu":
                return [self._deleted(kinds.DPU, rng.choice(devices()))]
        return []

    def _host(self, host: str) -> list[e.Event]:
        """A host with its devices: mostly in the same rack and pool as before."""
        rng, number = self._rng, int(host[1:])
        zone = self._zones[number % len(self._zones)] if rng.random() < 0.8 else rng.choice(self._zones)
        labels = {ZONE_LABEL: zone, "pool": rng.choice("aaab")}
        node = self._applied(kinds.DPU_NODE, host, {}, labels=labels)
        return [node, *(self._device(host, device) for device in HOSTS[host])]

    def _device(self, host: str, device: str) -> e.Event:
        annotations = {BMC_ADDRESS: f"simulated:{host}-{device}"}
        return self._applied(kinds.DPU_DEVICE, device, {}, labels={DPU_NODE_NAME: host}, annotations=annotations)

    def _set(self, name: str) -> list[e.Event]:
        """A DPUSet with an image, which is made if it does not exist."""
        image = self._rng.choice(IMAGES)
        template = {"bfb": {"name": image}, "dpuFlavor": FLAVOR, "nodeEffect": {"drain": {}}}
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": self._rng.choice((1, 2, "50%"))}}
        spec = {
            "dpuNodeSelector": {"matchLabels": {"pool": name[-1]}},
            "dpuTemplate": {"spec": template},
            "strategy": self._rng.choice((rolling, rolling, rolling, {"type": "OnDelete"})),
        }
        annotations = {BAKE_TIME: "2s", WAVES: "1,50%"} if self._rng.random() < 0.3 else {}
        return [
            self._applied(kinds.DPU_FLAVOR, FLAVOR, {}),
            self._applied(kinds.BFB, image, {"url": f"http://images/{image}"}),
            self._image(image, is_ready=True),
            self._applied(kinds.DPU_SET, name, spec, annotations=annotations),
        ]

    def _service(self, name: str) -> e.Event:
        """A service in the source cluster, with one of few versions of its chart."""
        source = {"repoURL": "https://charts", "chart": name, "version": self._rng.choice(VERSIONS)}
        return self._applied(kinds.DPU_SERVICE, name, {"deployInCluster": True, "helmChart": {"source": source}})

    def _cluster(self) -> e.Event:
        """The DPU cluster, which Kamaji makes, sometimes with less room than there are DPUs."""
        spec = {
            "type": "kamaji",
            "maxNodes": self._rng.choice((3, 100, 100)),
            "version": self._rng.choice(CLUSTER_VERSIONS),
            "clusterEndpoint": {"keepalived": KEEPALIVED},
        }
        return self._applied(kinds.DPU_CLUSTER, CLUSTER, spec)

    def _interface(self, name: str) -> e.Event:
        """An interface on a port of the DPU or of a service, for all DPUs or for one."""
        physical = {"interfaceType": "physical", "physical": {"interfaceName": name}}
        end = {"serviceID": name, "network": "mybrsfc", "interfaceName": "eth1"}
        spec = self._rng.choice((physical, {"interfaceType": "service", "service": end}))
        template = {"metadata": {"labels": {"port": name}}, "spec": spec}
        return self._applied(kinds.DPU_SERVICE_INTERFACE, name, self._for_nodes(template))

    def _chain(self, name: str) -> e.Event:
        """A chain between two interfaces, for all DPUs or for one."""
        ends = [{"serviceInterface": {"matchLabels": {"port": port}}} for port in self._rng.sample(PORTS, 2)]
        return self._applied(kinds.DPU_SERVICE_CHAIN, name, self._for_nodes({"spec": {"switches": [{"ports": ends}]}}))

    def _for_nodes(self, template: Mapping[str, Any]) -> Mapping[str, Any]:
        """The spec of a set of objects for the nodes of all DPUs, or of one."""
        one = {"matchLabels": {"kubernetes.io/hostname": self._rng.choice(devices())}}
        selecting = {"nodeSelector": one} if self._rng.random() < 0.3 else {}
        return {"template": {"spec": {**selecting, "template": template}}}

    def _image(self, name: str, *, is_ready: bool) -> e.Event:
        text = json.dumps({"ready": is_ready, "phase": "Ready" if is_ready else "Error"})
        return e.ResourcesObserved(self._envelope(), LOCAL, [kinds.BFB], [NAMESPACE], [name], [], [text])

    def _request(self, name: str) -> e.Event:
        """More requests to resume than to pause, because each broken image holds a rollout that has waves."""
        verb = self._rng.choice((PAUSE, RESUME, RESUME, UNDO))
        return e.RolloutRequested(self._envelope(), LOCAL, kinds.DPU_SET, NAMESPACE, name, verb, 0)

    def _applied(self, kind: str, name: str, spec: Mapping[str, Any], **columns: dict[str, str]) -> e.Event:
        return e.ResourcesApplied(
            self._envelope(),
            LOCAL,
            [kind],
            [NAMESPACE],
            [name],
            uids=[],
            generations=[],
            created_ms=[],
            deleted_ms=[],
            labels=[columns.get("labels", {})],
            annotations=[columns.get("annotations", {})],
            specs=[json.dumps(spec)],
            expected_generations=[],
        )

    def _deleted(self, kind: str, name: str) -> e.Event:
        return e.ResourcesDeleted(self._envelope(), LOCAL, [kind], [NAMESPACE], [name], [])

    def _envelope(self) -> e.Envelope:
        return envelope(LOCAL, NAME, uuid7(self._now_ms(), self._rng))


def dpu_key(name: str) -> str:
    """The key of the object of a DPU."""
    return ObjectId(LOCAL, kinds.DPU, NAMESPACE, name).key

"""Labels that change under the node effect, with a simulated host and a DPU cluster in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drivers.hosts.host import DONE, Progress
from drivers.hosts.simulated_hosts import SimulatedHost
from drivers.provisioning.cluster import ClusterNodes
from drivers.provisioning.label_effects import OBSERVED_S
from drivers.provisioning.maintenance import RECHECK_WATCHED_S, Maintenances
from drivers.provisioning.node_labels import NodeLabels
from drivers.provisioning.object_facts import ObjectFacts
from projections.kubernetes.dpu_node import patch_of
from projections.resources import kinds
from projections.resources.clusters import in_cluster
from projections.resources.specs import Labels
from projections.resources.state import ObjectId
from projections.resources.step_facts import HostRef
from tests.support.host_steps import HostsPlane
from tests.support.memory_plane import running

pytestmark = pytest.mark.virtual_clock

CLUSTER = ObjectId("local", kinds.DPU_CLUSTER, "dpf", "dc").key


class MemoryNodes:
    """The node of one DPU. `drained` has whether its host was drained at each change."""

    def __init__(self, host: SimulatedHost) -> None:
        self.metadata: dict[str, Any] = {"labels": {"rev": "0"}, "annotations": {}, "resourceVersion": ""}
        self.drained: list[bool] = []
        self._host = host

    async def join(self, node: str, labels: Labels, annotations: Labels) -> Progress:
        patch = patch_of({"metadata": self.metadata}, labels, annotations)
        if patch is not None:
            self.drained.append(self._host.is_drained)
            for field in ("labels", "annotations"):
                self.metadata[field] |= patch["metadata"].get(field, {})
        return DONE

    async def services(self, node: str, awaited: frozenset[str] | None) -> Progress:
        return DONE

    async def remove(self, node: str) -> None: ...

    async def changed(self, node: str) -> None:
        await asyncio.get_running_loop().create_future()


class LabelledPlane(HostsPlane):
    """A DPU that is ready, and whose node lacks a label."""

    nodes: MemoryNodes
    name: str

    async def label(self, process: str) -> None:
        """Start a process that keeps labels."""
        life = await self.start(process, "api", "kubernetes", acts=False)
        facts, ranks = ObjectFacts(life.replica), self.ranks(process)
        store = self.connections.store(life.replica, self.now_ms, self.rng())
        maintenances = Maintenances(store, self.connections.host, facts, self.now_ms)
        clusters = ClusterNodes(lambda cluster, bmc_address: self.nodes if cluster == CLUSTER else None)
        labels = NodeLabels(life.replica, ranks, clusters, maintenances, facts, role="kubernetes", rng=self.rng())
        self.spawn(process, labels.run())

    async def prepare(self, effect: dict[str, Any]) -> None:
        at = HostRef(ObjectId("local", kinds.DPU_NODE, "dpf", "h1"), "dpf", is_external=False)
        host = self.simulated.host(at, "simulated:h1-d1")
        assert isinstance(host, SimulatedHost)
        self.nodes = MemoryNodes(host)
        (self.name,) = await self.want("h1", "d1", effect=effect, node_labels={"rev": "1"})
        await self.allocate(self.name, "dc")
        await self.observe(ObjectId("local", kinds.DPU, "dpf", self.name), phase="Ready")
        await self.report_node()

    async def report_node(self) -> None:
        """Observe the node of the DPU."""
        at = in_cluster(CLUSTER, kinds.NODE, "", self.name)
        await self.observe(at, labels=self.nodes.metadata["labels"], annotations=self.nodes.metadata["annotations"])

    @property
    def maintenances(self) -> list[str]:
        return [*self.objects.of_kind("local", kinds.DPU_NODE_MAINTENANCE)]


@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_labels_change_while_the_host_is_drained_and_it_serves_again_afterwards(is_taken_over: bool) -> None:
    async with running(LabelledPlane) as made:
        await made.label("p1")
        await made.prepare({"drain": True, "applyOnLabelChange": True})
        await made.until(lambda: made.host("h1").is_cordoned)
        if is_taken_over:
            made.kill("p1")
            await made.label("p2")
        await made.until(lambda: made.nodes.metadata["labels"]["rev"] == "1", timeout_s=200)
        await asyncio.sleep(60)
        assert made.host("h1").is_cordoned, "nobody has seen the labels on the node yet"
        await made.report_node()
        await made.until(lambda: not made.host("h1").is_cordoned, timeout_s=200)
        await made.until(lambda: not made.maintenances)
        assert made.nodes.drained == [True]


async def test_without_the_setting_labels_change_at_once() -> None:
    async with running(LabelledPlane) as made:
        await made.label("p1")
        await made.prepare({"drain": True})
        await made.until(lambda: made.nodes.metadata["labels"]["rev"] == "1")
        assert made.nodes.drained == [False] and not made.maintenances


async def test_an_effect_ends_whose_labels_are_taken_back() -> None:
    async with running(LabelledPlane) as made:
        await made.label("p1")
        effect = {"hold": True, "applyOnLabelChange": True}
        await made.prepare(effect)
        await made.until(lambda: bool(made.maintenances))
        assert made.nodes.metadata["labels"] == {"rev": "0"}
        await made.unstate(kinds.DPU_SET, "of-h1")
        await made.until(lambda: not made.maintenances, timeout_s=2 * RECHECK_WATCHED_S)
        assert made.nodes.drained == []


async def test_labels_that_a_step_has_just_set_need_no_effect() -> None:
    """The DPU is observed as Ready before its node is observed with the labels that the step of the join has set."""
    async with running(LabelledPlane) as made:
        await made.label("p1")
        await made.prepare({"drain": True, "applyOnLabelChange": True})
        await asyncio.sleep(OBSERVED_S / 2)
        facts = await ObjectFacts(made.replicas["p1"]).of(made.name)
        assert facts is not None
        await made.nodes.join(made.name, facts.node_labels, facts.node_annotations)
        await made.report_node()
        await asyncio.sleep(60)
        assert not made.maintenances and not made.host("h1").is_cordoned
        assert made.nodes.drained == [False], "as the step has set them"

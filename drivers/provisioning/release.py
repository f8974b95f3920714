"""The executor of the end of a DPU, in DPF's order: its host, its node in the DPU cluster, and the device.

Each part may have been done by an earlier attempt. A part that cannot be done fails the step with its reason; an
operator may skip the step.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivers.provisioning.attempts import Attempt, Executor
from drivers.provisioning.cluster import ClusterNodes
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.node import findings_of
from drivers.provisioning.object_facts import ObjectFacts


class ReleaseExecutor:
    """Executes the step that ends a DPU. `device` executes the part of the device, if this process has devices."""

    def __init__(
        self, facts: ObjectFacts, maintenances: Maintenances, clusters: ClusterNodes, device: Executor | None
    ) -> None:
        self._facts = facts
        self._maintenances = maintenances
        self._clusters = clusters
        self._device = device

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        facts = await self._facts.of(attempt.name)
        await self._maintenances.leave(attempt, findings_of(attempt, self._facts, facts))
        for cluster in self._facts.clusters_of(attempt.name, facts):
            await self._clusters.remove(attempt, cluster)
        return {} if self._device is None else await self._device.run(attempt)

"""Nodes in simulated DPU clusters: a DPU joins as soon as its operating system runs, and its services run at once."""

from __future__ import annotations

import asyncio

from drivers.hosts.host import DONE, Progress
from projections.resources.specs import Labels


class SimulatedDpuNodes:
    """The nodes of a DPU cluster that a plane simulates, for DPUs whose BMCs it does not simulate itself."""

    async def join(self, node: str, labels: Labels, annotations: Labels) -> Progress:
        return DONE

    async def services(self, node: str, awaited: frozenset[str] | None) -> Progress:
        return DONE

    async def remove(self, node: str) -> None:
        return None

    async def changed(self, node: str) -> None:
        await asyncio.get_running_loop().create_future()

"""The scenario of the device demo: nodes join, DPUs are installed, a chain is built, one DPU is installed anew."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from deploy.demo.devices import manifests
from deploy.demo.devices.agents import DeviceAgents
from deploy.demo.devices.manifests import CHAIN, FIRST_IMAGE, SECOND_IMAGE, DemoDpu
from deploy.demo.devices.switches import DpuSwitches
from deploy.demo.load import DemoClient
from deploy.demo.object_scenario import POLL_S, READY, ObjectScenario
from deploy.demo.platform.manifests import NAMESPACE
from deploy.demo.progress import Display
from deploy.demo.stall_timeout import StallTimeout
from deploy.process.plane import Plane
from drivers.relays.relay import Relay
from projections.fleet.tables.zone_table import table
from projections.resources import kinds
from projections.resources.state import LOCAL, ObjectId
from projections.rules.rule import Held
from projections.zones.rows import Dpu
from schemas.api import dpuplane_pb2 as pb

NODES_PER_RACK = 20
STRANGER = "10.200.0.1"
"""An address of no node."""


class Evaluated(NamedTuple):
    """What the switches did with packets: the numbers of bridges that let pass those of a node, of a node that has
    left, and of a stranger."""

    of_node: int
    of_gone: int
    of_stranger: int


class DeviceScenario(ObjectScenario):
    """One run of the demo. The last DPU is the one that is installed anew."""

    def __init__(
        self,
        plane: Plane,
        api: DemoClient,
        display: Display,
        *,
        switches: DpuSwitches,
        agents: DeviceAgents,
        bmcs: Mapping[DemoDpu, tuple[str, int]],
        image_url: str,
    ) -> None:
        super().__init__(plane, api, display)
        assert plane.relay is not None, "the demo's plane has every role"
        self._relay: Relay = plane.relay
        self._switches = switches
        self._agents = agents
        self._bmcs = bmcs
        self._image_url = image_url
        self.dpus = switches.dpus
        self.reflashed = self.dpus[-1]
        self.evaluated = Evaluated(0, 0, 0)
        self.arrived: Mapping[str, int] = {}
        """Packets that arrived through the wire, by source; empty without root."""

    @property
    def racks(self) -> list[str]:
        return sorted({dpu.rack for dpu in self.dpus})

    @property
    def _names(self) -> list[str]:
        return [dpu.name for dpu in self.dpus]

    async def run(self) -> None:
        """Run all steps in order. Raises DemoFailed."""
        await self._join()
        await self._install()
        await self._program()
        await self._chain()
        await self._reflash()
        await self._leave()
        await self._check()

    async def _join(self) -> None:
        """Nodes join each rack. Each may reach every zone, so every DPU gets a rule for it."""
        with self._display.step("nodes joining", NODES_PER_RACK * len(self.racks)) as step:
            for number, rack in enumerate(self.racks, 1):
                nodes = [
                    pb.NodeSpec(name=f"{rack}-node-{each:02}", addresses=[address(number, each)])
                    for each in range(1, NODES_PER_RACK + 1)
                ]
                await self._api.command("JoinNodes", pb.JoinNodesRequest(zone=rack, nodes=nodes))
                step.advance(NODES_PER_RACK)

    async def _install(self) -> None:
        with self._display.step("DPUs installed over Redfish", len(self.dpus)) as step:
            foundations = manifests.foundations(self._image_url)
            hosts = manifests.hosts(self.dpus, reflashed=self.reflashed)
            sets = manifests.dpu_sets(len(self.dpus))
            await self._apply([*foundations, *hosts, *manifests.devices(self._bmcs), *sets])
            installed = partial(self._ready_with, self._names, FIRST_IMAGE)
            await self._until("installation", installed, len(self.dpus), step)

    async def _program(self) -> None:
        """Start the agents of the installed DPUs. Each programs the bridge of its DPU."""
        for dpu in self.dpus:
            self._agents.start(dpu, self._row(dpu).zone)
        await self._converge("bridges with the rules of the log")

    async def _chain(self) -> None:
        with self._display.step("bridges with the chain of services", len(self.dpus)) as step:
            await self._apply(manifests.chain())
            await self._until("chain", self._chained, len(self.dpus), step)

    async def _reflash(self) -> None:
        """Install another image on a DPU. Its bridge loses everything, and its new agent restores it."""
        with self._display.step("DPUs installed with another image", 1) as step:
            await self._apply([manifests.reflash()])
            installed = partial(self._ready_with, [self.reflashed.name], SECOND_IMAGE)
            await self._until(
                "begin", lambda: int(self._row(self.reflashed).phase != READY or installed() > 0), 1, step
            )
            await self._agents.stop(self.reflashed)
            await asyncio.to_thread(self._switches.lose_flows, self.reflashed)
            await self._until("another image", installed, 1, step)
        self._agents.start(self.reflashed, self._row(self.reflashed).zone)
        await self._until_restored(self.reflashed)

    async def _leave(self) -> None:
        """The first node leaves: its packets must be dropped everywhere."""
        rack = self.racks[0]
        await self._api.command("LeaveNodes", pb.LeaveNodesRequest(zone=rack, names=[f"{rack}-node-01"]))
        await self._converge("bridges without the node that left")

    async def _check(self) -> None:
        """Let the switch evaluate packets in every bridge, and send some through the wire."""
        gone, node = address(1, 1), address(1, 2)
        passed = dict.fromkeys((node, gone, STRANGER), 0)
        with self._display.step("packets evaluated by the switch", len(passed) * len(self.dpus)) as step:
            for source in passed:
                for dpu in self.dpus:
                    passed[source] += await asyncio.to_thread(self._switches.lets_pass, dpu, source)
                    step.advance()
        self.evaluated = Evaluated(*passed.values())
        if self._switches.wire is not None:
            self.arrived = await asyncio.to_thread(self._switches.send, list(passed))

    async def _until_restored(self, dpu: DemoDpu) -> None:
        """Wait until the switch lets pass packets through an emptied bridge. What the relay knows is of before."""
        what, stall_timeout = "bridges with rules and chain again", StallTimeout()
        with self._display.step(what, 1):
            while not await asyncio.to_thread(self._switches.lets_pass, dpu, address(1, 2)):
                stall_timeout.check(what, 0, 1, self._moves())
                await asyncio.sleep(POLL_S)

    # --- observation of the plane -------------------------------------------------------------------------------------

    async def _converge(self, what: str) -> None:
        with self._display.step(what, len(self.dpus)) as step:
            await self._until(what, self._up_to_date, len(self.dpus), step)

    def _up_to_date(self) -> int:
        """The number of DPUs whose bridges have the table of their zone, by the digest that was read back."""
        state, epoch, held = self._plane.states.fleet, self._plane.replica.generation, self._relay.devices()
        found = 0
        for dpu in self.dpus:
            zone = self._row(dpu).zone
            now = table(state, zone)
            found += held.get(zone, {}).get(dpu.name) == Held(epoch, now.version, now.digest)
        return found

    def _chained(self) -> int:
        """The number of DPUs that have applied the chain."""
        seen = self._state.seen.get(ObjectId(LOCAL, kinds.DPU_SERVICE_CHAIN, NAMESPACE, CHAIN).key)
        return int(seen.fields.get("applied", 0)) if seen is not None else 0

    def _row(self, dpu: DemoDpu) -> Dpu:
        return next(
            state.dpus.rows[dpu.name] for state in self._plane.states.all_zones() if dpu.name in state.dpus.rows
        )


def address(rack: int, node: int) -> str:
    return f"10.{rack}.0.{node}"

"""The scenario of the platform demo: what a user does, in order, through the API of a plane with simulated devices."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from random import Random

from deploy.demo.load import DemoClient
from deploy.demo.object_scenario import POLL_S, READY, ObjectScenario
from deploy.demo.platform import manifests
from deploy.demo.platform.manifests import DEPLOYMENT, DISCOVERY, FIRST_IMAGE, NAMESPACE, SECOND_IMAGE, SET, Object
from deploy.demo.progress import Display
from deploy.demo.stall_timeout import StallTimeout
from deploy.process.plane import Plane
from drivers.simulators.bmc_network import BmcNetwork, NetworkSizes, SimulatedDpu
from projections.resources import kinds
from projections.resources.discovery import SCANNED
from projections.resources.rollouts.rows import Rollout
from projections.resources.state import LOCAL, ObjectId, object_id
from schemas.api import dpuplane_pb2 as pb


class PlatformScenario(ObjectScenario):
    """One run of the demo. `broken` is the DPU that cannot take the second image."""

    def __init__(self, plane: Plane, api: DemoClient, sizes: NetworkSizes, image_url: str, display: Display) -> None:
        self._rng = Random()
        network = BmcNetwork(self._rng, sizes)
        super().__init__(plane, api, display)
        self._sizes = sizes
        self._racks = range(2, sizes.racks + 1 - sizes.racks_without)
        self.of_set = [dpu for dpu in network.dpus() if dpu.rack == 1]
        self.of_deployment = sorted((dpu for dpu in network.dpus() if dpu.rack > 1), key=manifests.dpu_name)
        self.broken: SimulatedDpu = self.of_deployment[max(1, len(self.of_deployment) // 10)]  # in the second wave
        self._hosts = manifests.hosts(network, sizes)
        self._foundations = manifests.foundations(image_url)
        self._services = manifests.services()

    @property
    def names(self) -> list[str]:
        """The names of all DPUs."""
        return [manifests.dpu_name(dpu) for dpu in (*self.of_set, *self.of_deployment)]

    async def run(self) -> None:
        """Run all steps in order. Raises DemoFailed."""
        await self._discover()
        await self._install()
        await self._update()
        await self._undo()
        await self._delete()

    async def _discover(self) -> None:
        search = manifests.discovery(self._sizes)
        addresses = 256 * self._sizes.racks
        with self._display.step("addresses searched for DPUs", addresses) as step:
            await self._apply([search])
            await self._until("search", lambda: addresses if self._is_searched() else 0, addresses, step)

    async def _install(self) -> None:
        """Apply everything, in no useful order: the users of images before the images, and the hosts last."""
        wanted = [manifests.dpu_set(FIRST_IMAGE), manifests.deployment(FIRST_IMAGE, self._racks)]
        with self._display.step("DPUs installed for the first time", len(self.names)) as step:
            await self._apply([*wanted, *self._services, *self._foundations, *self._hosts])
            await self._until("first installation", lambda: self._ready(FIRST_IMAGE), len(self.names), step)
        await self._until_ready(kinds.DPU_SET, SET)
        await self._until_ready(kinds.DPU_DEPLOYMENT, DEPLOYMENT)

    async def _update(self) -> None:
        """Update the deployment to an image that one DPU cannot take, until the rollout is held."""
        assert self._plane.simulated_bmcs is not None, "the plane of the demo has simulated devices"
        device = self._plane.simulated_bmcs.device(self.broken.serial.lower())
        device.faults = device.faults._replace(no_images=frozenset({SECOND_IMAGE}))
        with self._display.step("update in waves, until one fails and it is held", 1) as step:
            await self._apply([manifests.deployment(SECOND_IMAGE, self._racks)])
            await self._until("hold", lambda: int(self._is_held()), 1, step)

    async def _undo(self) -> None:
        with self._display.step("DPUs back on the first image", len(self.names)) as step:
            name = pb.ResourceName(kind=kinds.DPU_DEPLOYMENT, namespace=NAMESPACE, name=DEPLOYMENT)
            undo = pb.RequestRolloutRequest(name=name, verb=pb.RequestRolloutRequest.VERB_UNDO)
            await self._api.command("RequestRollout", undo)
            await self._until("roll back", lambda: self._ready(FIRST_IMAGE), len(self.names), step)
        await self._until_ready(kinds.DPU_DEPLOYMENT, DEPLOYMENT)

    async def _delete(self) -> None:
        """Delete everything; what others still refer to goes last, by itself."""
        users = [manifests.dpu_set(FIRST_IMAGE), manifests.deployment(FIRST_IMAGE, self._racks)]
        with self._display.step("DPUs deleted", len(self.names)) as step:
            await self._command_delete([*users, manifests.discovery(self._sizes)])
            await self._until("deletion", lambda: len(self.names) - self._known_dpus(), len(self.names), step)
        await self._command_delete([*self._services, *self._foundations, *self._hosts])
        devices = [Object(kinds.DPU_DEVICE, object_id(key).name, {}) for key in self._of_kind(kinds.DPU_DEVICE)]
        await self._command_delete(devices)
        total = len(self._state.objects.rows)
        with self._display.step("objects deleted", max(1, total)) as step:
            await self._until("deletion", lambda: total - len(self._state.objects.rows), total, step)

    # --- observation of the plane -------------------------------------------------------------------------------------

    def _of_kind(self, kind: str) -> Collection[str]:
        return self._state.of_kind(LOCAL, kind)

    def _is_searched(self) -> bool:
        seen = self._state.seen.get(ObjectId(LOCAL, kinds.DPU_DISCOVERY, NAMESPACE, DISCOVERY).key)
        return seen is not None and seen.phase == SCANNED

    def _ready(self, image: str) -> int:
        """The number of DPUs that are ready with an image."""
        return self._ready_with(self.names, image)

    def _known_dpus(self) -> int:
        return sum(ObjectId(LOCAL, kinds.DPU, NAMESPACE, name).key in self._state.seen for name in self.names)

    def _rollouts(self) -> Iterator[Rollout]:
        yield from self._state.rollouts.rows.values()

    def _is_held(self) -> bool:
        return any(row.held for row in self._rollouts())

    async def _command_delete(self, objects: Collection[Object]) -> None:
        if objects:
            await self._api.command("DeleteResources", manifests.delete(objects))

    async def _until_ready(self, kind: str, name: str) -> None:
        """Wait until an object has the condition Ready. Raises DemoFailed with its causes after a time without any
        progress of the log."""
        stall_timeout = StallTimeout()
        while True:
            found = await self._api.query(
                "GetResource", pb.GetResourceRequest(kind=kind, namespace=NAMESPACE, name=name)
            )
            if any(each.type == READY and each.status == "True" for each in found.conditions):
                return
            causes = "; ".join(cause.message for cause in found.causes if cause.root)
            stall_timeout.check(f"readiness of {name} ({causes})", 0, 1, self._moves())
            await asyncio.sleep(POLL_S)

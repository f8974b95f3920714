"""Processes with image stores over one in-memory log, against a real HTTP server of images."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from drivers.images.bfb import made_bfb
from drivers.images.content_store import ContentStore
from drivers.images.download import DownloadSettings
from drivers.images.images import Images, ImageSettings
from drivers.images.offload import in_place
from drivers.images.reports import ImageReports
from drivers.images.sources import AllowedHosts
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.fold import ResourcesFold
from projections.resources.kinds import BFB
from projections.resources.state import ObjectId, ResourcesState
from schemas.events import ResourcesApplied, ResourcesDeleted
from tests.support.image_server import ImageServer, content_of, image_server
from tests.support.memory_plane import Life, Plane, running

CONTENT = made_bfb([(1, content_of(100_000))], {"DOCA": "2.9.1001", "BF3_BSP": "4.9"})
SETTINGS = ImageSettings(
    retry_s=0.02, retry_max_s=0.05, locked_s=0.05, progress_s=0.02, download=DownloadSettings(30.0, 30.0, 10_000)
)
PARTITION = Partition(RESOURCES, 0)


class ImagePlane(Plane):
    """Processes with a folder of images each, or with one that they share."""

    def __init__(self, tasks: asyncio.TaskGroup, folder: Path) -> None:
        super().__init__(tasks, 1)
        self.folder = folder

    async def process(
        self, name: str, session: aiohttp.ClientSession, *, folder: str = "", settings: ImageSettings = SETTINGS
    ) -> Images:
        """Start a process that keeps images and reports their phases."""
        store = self._disk_of(name)
        replica = Replica(self.log, [ResourcesFold()], store=store, name=name, now_ms=self.now_ms, rng=self.rng())
        self._begin(name, Life(replica, store, []))
        await replica.ready()
        images = Images(
            replica,
            self.store(folder or name),
            session,
            AllowedHosts(["127.0.0.1"]),
            in_place,
            now_ms=self.now_ms,
            rng=self.rng(),
            settings=settings,
        )
        self.spawn(name, images.run())
        reports = ImageReports(images, replica, self.ranks(name), now_ms=self.now_ms, rng=self.rng())
        self.spawn(name, reports.run())
        return images

    def store(self, folder: str) -> ContentStore:
        return ContentStore(self.folder / folder)

    @property
    def state(self) -> ResourcesState:
        return FoldStates(self._any()).resources_at(PARTITION)

    async def apply(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        kind: str = BFB,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        namespace: str = "dpf",
    ) -> None:
        event = ResourcesApplied(
            self.command("local"),
            source="local",
            kinds=[kind],
            namespaces=[namespace],
            names=[name],
            uids=[],
            generations=[],
            created_ms=[],
            deleted_ms=[],
            labels=[dict(labels or {})],
            annotations=[dict(annotations or {})],
            specs=[json.dumps(spec)],
            expected_generations=[],
        )
        answer = await self._any().submit(PARTITION, b"local", event, timeout_s=30)
        assert answer.outcome.code == "done", answer.outcome

    async def delete(self, name: str, *, kind: str = BFB) -> None:
        event = ResourcesDeleted(self.command("local"), "local", [kind], ["dpf"], [name], [])
        await self._any().submit(PARTITION, b"local", event, timeout_s=30)

    def seen(self, name: str, kind: str = BFB) -> dict[str, Any]:
        """The last observation of an image; empty if there is none."""
        found = self.state.observed.rows.get(key(name, kind))
        return {} if found is None else dict(json.loads(found.observation))

    async def until_phase(self, name: str, phase: str, *, kind: str = BFB) -> dict[str, Any]:
        await self.until(lambda: self.seen(name, kind).get("phase") == phase, timeout_s=60)
        return self.seen(name, kind)


def key(name: str, kind: str = BFB) -> str:
    return ObjectId("local", kind, "dpf", name).key


@asynccontextmanager
async def image_plane(folder: Path) -> AsyncIterator[tuple[ImagePlane, ImageServer, aiohttp.ClientSession]]:
    """A plane without processes, a server of images, and a session for clients."""
    async with (
        image_server() as server,
        aiohttp.ClientSession() as session,
        running(lambda tasks: ImagePlane(tasks, folder)) as made,
    ):
        yield made, server, session

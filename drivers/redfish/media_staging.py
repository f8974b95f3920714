"""The staging of media, as one attempt executes it: it reads the BMC, and makes the next move (media_staging_moves)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.redfish.connection import Connection
from drivers.redfish.media_staging_moves import (
    ENTRIES,
    MediaPart,
    MediaStagingDone,
    MediaStagingFailed,
    MediaStagingOrder,
    MediaStagingWait,
    SeenMediaStaging,
    SendUpdate,
    logged_media_staging,
    next_media_staging_move,
)
from drivers.redfish.polling import Polling
from drivers.redfish.resources import ROOT, Link
from drivers.redfish.update_installation import read_tasks, simple_update, task_of
from drivers.redfish.update_moves import Asked, Started, target_of

MEDIA_PERCENT = 40
"""The progress of an installation whose media are staged."""
_INVENTORY = f"{ROOT}/UpdateService/FirmwareInventory"


async def takes_media(bmc: Connection, parts: Collection[str]) -> bool:
    """Whether the BMC takes these parts into its own storage."""
    found = await bmc.attempt.call(partial(bmc.client.members, Link(_INVENTORY)), alters=False)
    names = {path.rstrip("/").rpartition("/")[2] for path in found}
    return all(ENTRIES[part] in names for part in parts)


class MediaStaging:
    """The staging of one attempt. `urls` gives the URL of each part, in the order of staging, with tokens that last."""

    def __init__(self, bmc: Connection, urls: Mapping[str, Callable[[], Awaitable[str]]]) -> None:
        self._bmc = bmc
        self._attempt = bmc.attempt
        self._urls = urls
        self._logged = logged_media_staging(bmc.attempt.dpu.task)
        self._reported: object = None
        self._polling = Polling(bmc.attempt.timing)

    async def run(self) -> None:
        """Stage the parts that are lacking. Raises the errors of a device."""
        dpu = self._attempt.dpu
        targets = {part: target_of(await url()) for part, url in self._urls.items()}
        order = MediaStagingOrder(targets, dpu.attempt, dpu.disowned)
        while True:
            seen = await self._polling.read(partial(self._look, order))
            match next_media_staging_move(order, self._logged, seen):
                case MediaStagingDone():
                    return
                case MediaStagingFailed(kind, message):
                    raise (Unreachable if kind == "transient" else TaskFailed)(message)
                case SendUpdate(part, known):
                    await self._stage(part, known)
                    self._polling.restart()
                case MediaStagingWait(staged, percent):
                    await self._report(staged, percent)
                    await self._polling.pause()

    async def _look(self, order: MediaStagingOrder) -> SeenMediaStaging:
        """The tasks of the BMC. While the own one runs, only that is read."""
        logged = self._logged
        own = ""
        if logged is not None and isinstance(logged.update, Started) and logged.update.attempt > order.disowned:
            own = logged.update.task
        tasks = await read_tasks(self._bmc, own)
        if own and not any(task.state == "running" for task in tasks):
            tasks = await read_tasks(self._bmc)
        return SeenMediaStaging(tasks, self._polling.quiet_s(tuple((task.id, task.state) for task in tasks)))

    async def _stage(self, part: str, known: tuple[str, ...]) -> None:
        """Send the update once. An event is appended first, so that a successor knows that it may have been sent."""
        url = await self._urls[part]()
        asked = Asked(self._attempt.dpu.attempt, known)
        await self._report(MediaPart(part, asked), 0)
        request = simple_update(url, [f"{_INVENTORY}/{ENTRIES[part]}"])
        answer = await self._attempt.call(partial(self._bmc.client.send, request))
        if name := task_of(self._bmc, answer):
            await self._report(MediaPart(part, Started(name, asked.attempt)), 0)

    async def _report(self, staged: MediaPart, percent: int) -> None:
        """Append what was done, and each quarter of the progress of a task."""
        self._logged = staged
        if (shown := (staged, percent // 25)) != self._reported:
            self._reported = shown
            parts = list(self._urls)
            share = (parts.index(staged.part) * 100 + percent) // len(parts)
            await self._attempt.report_progress(staged.text(), share * MEDIA_PERCENT // 100)

"""An installation from virtual media, as one attempt executes it: it reads the BMC, and makes the next move
(media_moves) until the DPU runs the image."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.redfish.answers import NotFound
from drivers.redfish.connection import VERSIONS, Connection
from drivers.redfish.media_moves import (
    Boot,
    BootAsked,
    Eject,
    Insert,
    Installed,
    MediaFailed,
    MediaMove,
    MediaOrder,
    MediaWait,
    Override,
    SeenMedia,
    Slot,
    logged_boot,
    next_media_move,
)
from drivers.redfish.media_staging import MEDIA_PERCENT, MediaStaging, takes_media
from drivers.redfish.media_staging_moves import CONFIG, FILES, IMAGE
from drivers.redfish.polling import Polling
from drivers.redfish.resources import Link, Request, System, VirtualMedia, best_member
from eventstore.errors import PlaneError
from projections.resources.specs import JSON

BOOT_TARGET, _ONCE = "Usb", "Once"
"""The boot source that BlueField-4 gives its virtual media."""
BOOTED_PERCENT = 50


class MediaInstallation:
    """The installation of one attempt. `url` and `seed_url` give the URLs of the image and of its configuration, with
    tokens that last; an empty one stands for an image without a configuration. A BMC that can stage media gets them
    first; another one streams them while they are booted."""

    def __init__(
        self,
        bmc: Connection,
        url: Callable[[], Awaitable[str]],
        seed_url: Callable[[], Awaitable[str]],
        versions: Mapping[str, str],
    ) -> None:
        self._bmc = bmc
        self._attempt = bmc.attempt
        self._url = url
        self._seed_url = seed_url
        self._versions = versions
        self._logged: BootAsked | None = logged_boot(bmc.attempt.dpu.task)
        self._paths: Mapping[str, str] = {}
        self._polling = Polling(bmc.attempt.timing)
        self._boot_id = ""
        self._boots = 0
        self._prepared_percent = 0
        self._is_reported = bmc.attempt.dpu.percent >= BOOTED_PERCENT

    async def run(self) -> None:
        """Install the image, and remove its media. Raises the errors of a device."""
        order, sent = await self._order(), set[MediaMove]()
        while True:
            seen = await self._polling.read(self._look)
            match move := next_media_move(order, self._logged, seen, sent):
                case Installed():
                    await self._eject_all(seen)
                    return
                case MediaFailed(message):
                    with suppress(PlaneError):
                        await self._eject_all(seen)
                    raise TaskFailed(message)
                case MediaWait(is_booted):
                    await self._report(is_booted)
                    await self._polling.pause()
                case _:
                    sent.add(move)
                    await self._make(move, seen)
                    self._polling.restart()

    async def _order(self) -> MediaOrder:
        dpu = self._attempt.dpu
        urls = await self._media_urls()
        paths = await self._slots_of(self._bmc.manager) or await self._slots_of(self._bmc.system)
        image = best_member(paths, IMAGE)
        config = best_member([path for path in paths if path != image], CONFIG)
        found = {IMAGE: image, CONFIG: config}
        for name in urls:
            if not found[name]:
                raise NeedsOperator(f"media: {self._bmc.client.host} has no slot for the {name} of the installation")
        self._paths = {name: path for name, path in found.items() if name in urls}
        before = {name: dpu.facts[fact] for name, fact in VERSIONS.items() if fact in dpu.facts}
        return MediaOrder(urls, dpu.attempt, dpu.disowned, self._versions, before)

    async def _slots_of(self, owner: str) -> Sequence[str]:
        """The slots for media of the manager, where BlueFields have them, or of the system, where later versions of the
        standard have them."""
        collection = Link(f"{owner}/VirtualMedia")
        return await self._attempt.call(partial(self._bmc.client.members, collection), alters=False)

    async def _media_urls(self) -> dict[str, str]:
        """The URL of the medium for each slot, which the BMC can present."""
        urls = {IMAGE: await self._url(), CONFIG: await self._seed_url()}
        urls = {name: url for name, url in urls.items() if url}
        if not await takes_media(self._bmc, urls):
            return urls
        self._prepared_percent = MEDIA_PERCENT
        if self._logged is None or self._logged.attempt <= self._attempt.dpu.disowned:
            sources = {IMAGE: self._url, CONFIG: self._seed_url}
            await MediaStaging(self._bmc, {name: sources[name] for name in urls}).run()
        return {name: FILES[name] for name in urls}

    async def _look(self) -> SeenMedia:
        system = await self._bmc.read_system()
        versions = await self._bmc.read_versions() if system.is_up else {}
        slots = {name: await self._slot(path) for name, path in self._paths.items()}
        is_overridden = await self._is_overridden(system)
        if self._boot_id and system.boot_id not in ("", self._boot_id):
            self._boots += 1
        self._boot_id = system.boot_id or self._boot_id
        quiet_s = self._polling.quiet_s((system.boot_id, system.is_up))
        return SeenMedia(slots, is_overridden, system.boot_id, system.is_up, versions, quiet_s, self._boots)

    async def _slot(self, path: str) -> Slot:
        found = await self._attempt.call(partial(self._bmc.client.read, path, VirtualMedia), alters=False)
        return Slot(path, bool(found.inserted or found.image), found.image or "")

    async def _is_overridden(self, system: System) -> bool:
        """Whether the next boot is that of the media: the settings of the next boot say it, where a BMC has them."""
        path = f"{self._bmc.system}/Settings"
        settings = await self._attempt.call(partial(self._bmc.client.find, path, System), alters=False)
        boot = (settings and settings.boot) or system.boot
        return boot is not None and (boot.target, boot.enabled) == (BOOT_TARGET, _ONCE)

    async def _make(self, move: MediaMove, seen: SeenMedia) -> None:
        match move:
            case Eject(name):
                await self._eject(seen.slots[name].path)
            case Insert(name, url):
                body = {"Image": url, "Inserted": True, "WriteProtected": True, "TransferMethod": "Stream"}
                await self._send("POST", f"{seen.slots[name].path}/Actions/VirtualMedia.InsertMedia", body)
            case Override():
                await self._override(BOOT_TARGET, _ONCE)
            case Boot(asked):
                await self._attempt.report_progress(asked.text(), self._prepared_percent)
                self._logged, self._is_reported = asked, False
                await self._bmc.reset_card("ArmReset")
                self._polling.moved()

    async def _eject_all(self, seen: SeenMedia) -> None:
        """Remove the media, so that no later boot installs again."""
        if seen.is_overridden:
            await self._override("None", "Disabled")
        for slot in seen.slots.values():
            if slot.is_inserted:
                await self._eject(slot.path)

    async def _eject(self, path: str) -> None:
        await self._send("POST", f"{path}/Actions/VirtualMedia.EjectMedia", {})

    async def _override(self, target: str, enabled: str) -> None:
        boot = {
            "BootSourceOverrideTarget": target,
            "BootSourceOverrideMode": "UEFI",
            "BootSourceOverrideEnabled": enabled,
        }
        try:
            await self._send("PATCH", f"{self._bmc.system}/Settings", {"Boot": boot})
        except NotFound:
            await self._send("PATCH", self._bmc.system, {"Boot": boot})

    async def _send(self, method: str, path: str, body: JSON) -> None:
        await self._attempt.call(partial(self._bmc.client.send, Request(method, path, body)))

    async def _report(self, is_booted: bool) -> None:
        """Append once that the media have been booted."""
        if is_booted and not self._is_reported and self._logged is not None:
            self._is_reported = True
            await self._attempt.report_progress(self._logged.text(), BOOTED_PERCENT)

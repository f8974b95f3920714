"""The images that objects want, each kept by a task until it is there: downloaded, verified and recorded.

A failed download is reported as a phase with its cause, and is repeated for ever, with growing pauses. A change of the
object wakes the task at once. Each replica of role provisioner has its own images. Only the replica with the lowest
rank reports their phases to the log, since DPUs are installed from there.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from drivers.images.bfb import BadImage
from drivers.images.content_store import ContentStore, Kept
from drivers.images.download import Download, Downloaded, DownloadFailed, DownloadSettings, Request
from drivers.images.offload import Offload
from drivers.images.pldm import PACKAGE
from drivers.images.sources import AllowedHosts, RefusedAddress, shown
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.resources.image_files import KINDS, ImageFile, components, files_of, stated_versions
from projections.resources.kinds import BFB, short_name
from projections.resources.state import Resource, object_id

logger = logging.getLogger(__name__)

INITIALIZING, DOWNLOADING, READY, DELETING, ERROR = "Initializing", "Downloading", "Ready", "Deleting", "Error"
PHASES = (INITIALIZING, DOWNLOADING, READY, DELETING, ERROR)


class ImageSettings(NamedTuple):
    """Times of the image store, in seconds."""

    retry_s: float = 1.0
    """First pause after a failed download; each further one is twice as long."""
    retry_max_s: float = 300.0
    """Longest pause after a failed download."""
    locked_s: float = 5.0
    """Pause while another process downloads the same file to a shared folder."""
    progress_s: float = 5.0
    """Shortest time between two reports of the progress of a download."""
    collect_s: float = 600.0
    """Time between collections of content that no object has."""
    grace_s: float = 3600.0
    """Time for which content stays after its object is gone: an object that is made anew finds it."""
    downloads_at_once: int = 4
    """Maximum number of concurrent downloads."""
    download: DownloadSettings = DownloadSettings()


_SETTINGS = ImageSettings()


class Status(NamedTuple):
    """The reported status of an image. `fields` are those besides the common ones."""

    phase: str
    message: str
    fields: dict[str, Any]

    def observation(self) -> dict[str, Any]:
        return {"ready": self.phase == READY, "phase": self.phase, "message": self.message, **self.fields}


class ReadyFile(NamedTuple):
    """A file that can be served. `hash` is that of its content."""

    name: str
    kept: Kept
    hash: hashlib._Hash


class Image:
    """An image that an object wants."""

    def __init__(self, key: str, row: Resource, files: tuple[ImageFile, ...] | str) -> None:
        self.key = key
        self.row = row
        self.files = files
        self.status: Status | None = None
        self.ready: dict[str, ReadyFile] = {}
        """The files that are there, by field of the spec."""
        self.wakes = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Images:
    """Keeps the images of all objects until `run` is cancelled.

    `received_bytes` counts downloaded bytes, `downloads` ended downloads by result (done, failed).
    """

    def __init__(
        self,
        replica: Replica,
        store: ContentStore,
        session: aiohttp.ClientSession,
        allowed: AllowedHosts,
        offload: Offload,
        *,
        now_ms: Callable[[], int],
        rng: Random,
        settings: ImageSettings = _SETTINGS,
    ) -> None:
        self.images: dict[str, Image] = {}
        self.received_bytes = 0
        self.downloads: Counter[str] = Counter()
        self.stored_bytes = 0
        self.changed = asyncio.Event()
        self._replica = replica
        self._states = FoldStates(replica)
        self._store = store
        self._session = session
        self._allowed = allowed
        self._offload = offload
        self._now_ms = now_ms
        self._rng = rng
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.downloads_at_once)
        self._kept: dict[str, Kept] = {}
        self._hashes: dict[str, hashlib._Hash] = {}

    async def run(self) -> None:
        for kept in await self._offload(self._store.open):
            self._kept[kept.key] = kept
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(RESOURCES):
                tasks.create_task(self._follow(partition, tasks))
            tasks.create_task(self._collect())

    def file_of(self, key: str) -> ReadyFile | None:
        """The file of a BFB; None while it is not there."""
        image = self.images.get(key)
        return image.ready.get("url") if image is not None and object_id(key).kind == BFB else None

    def lost_content(self, sha256: str) -> None:
        """Note that a content cannot be read: the images that have it are checked, and downloaded again."""
        self._hashes.pop(sha256, None)
        for image in self.images.values():
            if any(each.kept.sha256 == sha256 for each in image.ready.values()):
                image.ready.clear()
                image.wakes.set()

    # -- the objects

    async def _follow(self, partition: Partition, tasks: asyncio.TaskGroup) -> None:
        journal_of, revision = self._states.resources_at(partition), -1
        while True:
            state = self._states.resources_at(partition)
            found = state.journal.since(revision) if state is journal_of else None
            journal_of, revision = state, state.journal.revision
            for key in self._keys(partition) if found is None else found:
                if object_id(key).kind in KINDS:
                    self._reconcile(key, state.objects.rows.get(key), tasks)
            await self._replica.fold_waits.changed(partition)

    def _keys(self, partition: Partition) -> Iterable[str]:
        """The objects of a partition, and the images of objects that it has no more."""
        rows = self._states.resources_at(partition).objects.rows
        gone = [key for key in self.images if self._is_in(key, partition) and key not in rows]
        return [*gone, *(key for key in rows if object_id(key).kind in KINDS)]

    def _is_in(self, key: str, partition: Partition) -> bool:
        return self._replica.partition_for(RESOURCES, object_id(key).source) == partition

    def _reconcile(self, key: str, row: Resource | None, tasks: asyncio.TaskGroup) -> None:
        image = self.images.get(key)
        if row is None:
            if image is not None:
                self._stop(image)
                del self.images[key]
                tasks.create_task(self._forget(key))
                self.changed.set()
            return
        files = files_of(key, row)
        if image is not None and image.files == files and image.row.uid == row.uid and not row.deleted_ms:
            image.row = row
            image.wakes.set()
            return
        if image is not None:
            self._stop(image)
        image = self.images[key] = Image(key, row, files)
        if row.deleted_ms:
            self._report(image, DELETING, "it is removed once no DPU needs it")
        elif isinstance(files, str):
            self._report(image, ERROR, files)
        else:
            image.task = tasks.create_task(self._keep(image, files))

    def _stop(self, image: Image) -> None:
        if image.task is not None:
            image.task.cancel()

    async def _forget(self, key: str) -> None:
        for name in [each for each in self._kept if each.partition("#")[0] == key]:
            del self._kept[name]
            await self._offload(functools.partial(self._store.forget, name))

    # -- one image

    async def _keep(self, image: Image, files: tuple[ImageFile, ...]) -> None:
        """Get all files of an image. The task ends when it is cancelled."""
        pause_s = self._settings.retry_s
        while True:
            image.wakes.clear()
            try:
                for file in files:
                    image.ready[file.field] = await self._get(image, file)
            except (DownloadFailed, BadImage, RefusedAddress, OSError) as error:
                self.downloads["failed"] += 1
                reason = _reason(error, files)
                if image.status is None or (image.status.phase, image.status.message) != (ERROR, reason):
                    logger.warning(
                        "image not downloaded, retrying", extra={"image": short_name(image.key), "reason": reason}
                    )
                self._report(image, ERROR, reason)
                await _wait(pause_s * self._rng.uniform(0.5, 1.0), image.wakes)
                pause_s = min(2 * pause_s, self._settings.retry_max_s)
                continue
            self._report(image, READY, "", self._facts(image))
            pause_s = self._settings.retry_s
            await image.wakes.wait()

    async def _get(self, image: Image, file: ImageFile) -> ReadyFile:
        """The file, from the folder or by a download. Raises the errors of a download."""
        name = _record_name(image.key, file)
        while True:
            kept = self._kept.get(name) or await self._offload(lambda: self._store.kept(name))
            if kept is not None and (found := await self._verified(kept, file)) is not None:
                return self._have(file, kept, found)
            if image.status is None or image.status.phase != ERROR:
                self._report(image, INITIALIZING, "the download has not begun")
            async with self._slots:
                done = await self._download(image, file)
            if done is not None:
                break
            self._report(image, DOWNLOADING, "another process downloads it to the same folder")
            await asyncio.sleep(self._settings.locked_s)
        kept = Kept(name, file.url, done.sha256, done.size, done.versions)
        await self._offload(functools.partial(self._store.keep, kept))
        self.downloads["done"] += 1
        logger.info("image downloaded", extra={"image": short_name(image.key), "bytes": done.size})
        return self._have(file, kept, done.hash)

    async def _verified(self, kept: Kept, file: ImageFile) -> hashlib._Hash | None:
        """The hash of what the folder has for a file; None if it is of another file or is damaged."""
        if kept.url != file.url or file.sha256 not in ("", kept.sha256):
            return None
        return self._hashes.get(kept.sha256) or await self._offload(lambda: self._store.hashed(kept.sha256))

    def _have(self, file: ImageFile, kept: Kept, found: hashlib._Hash) -> ReadyFile:
        self._kept[kept.key] = kept
        self._hashes[kept.sha256] = found
        return ReadyFile(file.name, kept, found)

    async def _download(self, image: Image, file: ImageFile) -> Downloaded | None:
        """Download a file; None if another process downloads it."""
        partial = await self._offload(lambda: self._store.partial(image.key, file.url))
        if partial is None:
            return None
        download = Download(
            self._session,
            self._store,
            self._allowed,
            self._offload,
            count_bytes=self._count_bytes,
            settings=self._settings.download,
        )
        reporter = asyncio.ensure_future(self._report_progress(image, download))
        try:
            return await download.run(Request(URL(file.url), file.sha256, file.is_bfb), partial)
        finally:
            reporter.cancel()
            partial.close()

    def _count_bytes(self, count: int) -> None:
        self.received_bytes += count

    async def _report_progress(self, image: Image, download: Download) -> None:
        stated = -1
        while True:
            if download.received and download.received != stated:
                stated = download.received
                self._report(image, DOWNLOADING, _progress(download))
                await asyncio.sleep(self._settings.progress_s)
            else:
                await asyncio.sleep(min(0.1, self._settings.progress_s))

    def _facts(self, image: Image) -> dict[str, Any]:
        files = image.ready
        found: dict[str, Any] = {"size": sum(each.kept.size for each in files.values())}
        if "url" in files:
            file = files["url"]
            found |= {"fileName": file.name, "sha256": file.kept.sha256}
            versions = stated_versions(image.key, image.row) | file.kept.versions
            return found | ({"versions": versions} if versions else {})
        found |= {"downloadedComponents": components({field: each.name for field, each in files.items()})}
        bundle = files.get("pldmFwBundle")
        version = bundle.kept.versions.get(PACKAGE) if bundle is not None else None
        return found | ({"versions": {"fwBundleVersion": version}} if version else {})

    def _report(self, image: Image, phase: str, message: str, fields: dict[str, Any] | None = None) -> None:
        status = Status(phase, message, fields or {})
        if status != image.status:
            image.status = status
            self.changed.set()

    # -- the folder

    async def _collect(self) -> None:
        """Remove what no object needs."""
        while True:
            before_s = self._now_ms() / 1_000 - self._settings.grace_s
            referenced = [kept.sha256 for kept in self._kept.values()]
            downloads = [
                (image.key, file.url)
                for image in self.images.values()
                if not isinstance(image.files, str)
                for file in image.files
            ]
            try:
                found = await self._offload(functools.partial(self._store.collect, referenced, downloads, before_s))
                self.stored_bytes = await self._offload(self._store.used_bytes)
            except OSError as error:
                logger.warning("unused images not removed, retrying", extra={"reason": error.strerror})
            else:
                if found.files:
                    logger.info("unused images removed", extra=found._asdict())
            await asyncio.sleep(self._settings.collect_s)


def _record_name(key: str, file: ImageFile) -> str:
    return key if file.is_bfb else f"{key}#{file.field}"


def _reason(error: Exception, files: tuple[ImageFile, ...]) -> str:
    """Why a download failed, as a sentence without the name of the object."""
    if isinstance(error, BadImage):
        where = shown(URL(files[0].url)) if len(files) == 1 else "a file"
        return f"{where} {error}"
    if isinstance(error, OSError):
        return f"the folder of the image store cannot be used: {error.strerror or type(error).__name__}"
    return str(error)


def _progress(download: Download) -> str:
    megabytes = f"{download.received / 1e6:.1f}"
    if download.size <= 0:
        return f"{megabytes} MB received"
    return f"{download.received * 100 // download.size} % of {download.size / 1e6:.1f} MB received"


async def _wait(seconds: float, wakes: asyncio.Event) -> None:
    """Wait for a time, or until woken."""
    try:
        async with asyncio.timeout(seconds):
            await wakes.wait()
    except TimeoutError:
        return

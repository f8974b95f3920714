"""One watch of a collection for all steps that wait for a change of one of its objects.

A thousand hosts may wait at once for their maintenances. With a watch each, they would occupy a thousand connections,
and the API server would compare each change with a thousand selectors.

The steps themselves read the watch: one of them reads for all, and when it leaves, another one goes on from the last
version. So no task outlives the steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from drivers.kubernetes.hosts.calls import PAUSE_S, WATCH_S, read_list
from schemas.kubernetes.api import GONE, NOT_FOUND, ApiError, KubernetesApi, WatchEvent
from schemas.kubernetes.objects import version_number

IDLE_S = 90.0
"""Maximum time without a line before a watch counts as stalled. The API server sends a bookmark about once a minute."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    name: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata


_item = msgspec.json.Decoder(_Item)


class _Waiter:
    """A wait for an object to have another version than this one."""

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.has_changed = False
        self.signal = asyncio.Event()
        """Set when the object has changed, or when this waiter is to read the watch."""


class SharedWatch:
    """The watch of one collection of an API server."""

    def __init__(self, api: KubernetesApi, path: str) -> None:
        self._api = api
        self._path = path
        self._version = ""
        """The version from which the watch goes on; empty if there is none."""
        self._waiters: dict[str, dict[_Waiter, None]] = {}
        self._idle: dict[_Waiter, None] = {}
        """The waiters that neither read the watch nor their object."""
        self._is_read = False
        self._reading: asyncio.Timeout | None = None
        """Ends the present watch, if there is one."""
        self._begin = asyncio.Lock()

    async def changed(self, name: str, version: str) -> None:
        """Return when an object may have another version than this one, which is empty for an absent object."""
        waiter = _Waiter(name, version)
        self._waiters.setdefault(name, {})[waiter] = None
        try:
            if await self._present_version(name) == version:
                await self._wait(waiter)
        finally:
            self._remove(waiter)

    async def _present_version(self, name: str) -> str:
        """The version of an object, read after the watch has a version to go on from: the watch shows later changes."""
        selected = {"fieldSelector": f"metadata.name={name}"}
        items = None
        async with self._begin:
            if not self._version:
                items, self._version = await read_list(self._api, self._path, selected)
        if items is None:
            before = self._version
            items, listed = await read_list(self._api, self._path, selected)
            if version_number(listed) < version_number(before):  # the server was restored from a backup
                self._lose_track()
        return "".join(each["metadata"]["resourceVersion"] for each in items)

    async def _wait(self, waiter: _Waiter) -> None:
        while self._version and not waiter.has_changed:
            if self._is_read:
                waiter.signal.clear()
                self._idle[waiter] = None
                await waiter.signal.wait()
                self._idle.pop(waiter, None)
                continue
            self._is_read = True
            try:
                await self._read(waiter)
            finally:
                self._is_read = False

    async def _read(self, reader: _Waiter) -> None:
        """Read the watch for all waiters, until the reader's own object has changed."""
        while self._version and not reader.has_changed:
            try:
                async with asyncio.timeout(None) as reading:
                    await self._read_events(reader, reading)
            except TimeoutError:  # track was lost
                return
            except ApiError as error:
                if error.status in (GONE, NOT_FOUND):
                    self._lose_track()
            if self._version and not reader.has_changed:
                await asyncio.sleep(PAUSE_S)

    async def _read_events(self, reader: _Waiter, reading: asyncio.Timeout) -> None:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": WATCH_S,
        }
        self._reading = reading
        try:
            async with self._api.watch(self._path, query, idle_s=IDLE_S) as events:
                async for event in events:
                    if not reader.has_changed:  # else the track was lost, and the event is of no use
                        self._take(event)
                    if reader.has_changed:
                        return
        finally:
            self._reading = None

    def _take(self, event: WatchEvent) -> None:
        try:
            metadata = _item.decode(event.object).metadata
        except msgspec.DecodeError:  # it may be of any object
            self._lose_track()
            return
        self._version = metadata.resource_version
        if event.type != "BOOKMARK":
            present = "" if event.type == "DELETED" else metadata.resource_version
            for waiter in self._waiters.get(metadata.name, ()):
                if waiter.version != present:
                    _tell(waiter)

    def _lose_track(self) -> None:
        """Tell all waiters: the server does not have the changes since the last version any more."""
        self._version = ""
        for waiter in self._all():
            _tell(waiter)
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())

    def _all(self) -> Iterator[_Waiter]:
        for waiters in self._waiters.values():
            yield from waiters

    def _remove(self, waiter: _Waiter) -> None:
        self._idle.pop(waiter, None)
        self._waiters[waiter.name].pop(waiter)
        if not self._waiters[waiter.name]:
            del self._waiters[waiter.name]
        if not self._waiters:
            self._version = ""
        elif self._idle and not self._is_read:
            next(iter(self._idle)).signal.set()


def _tell(waiter: _Waiter) -> None:
    waiter.has_changed = True
    waiter.signal.set()

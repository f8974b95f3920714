"""A session with the database server of Open vSwitch over its socket: JSON-RPC, by RFC 7047.

The `ovs` library is not used: its streams and its IDL run in a poll loop of their own, which blocks the event loop, and
cannot be driven by asyncio without a thread. The session keeps a copy of the monitored columns, which the server
updates.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from eventstore.errors import TransientError

DATABASE = "Open_vSwitch"
CONNECT_S = 5.0
ECHO_S = 5.0
"""A server that sends nothing for this time is asked for an echo; it is lost if it sends nothing for twice the time."""
REPLY_S = 20.0
"""Timeout of a reply."""
CHUNK = 1 << 18
MESSAGE_MAX = 1 << 26
"""Maximum number of characters of a message."""
CLOSED = "the database server closed the connection"
_MONITOR = "dpuplane"

Row: TypeAlias = dict[str, Any]
Operation: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, dict[str, Row]]
"""Rows by table and UUID."""


class DatabaseLost(TransientError):
    """There is no session with the database server, or it ended."""


class DatabaseRefused(TransientError):
    """The database refused a transaction as a whole."""


class DatabaseSession:
    """One connection. `serve` must run while requests are made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rows: Rows = {}
        """The monitored rows, as of the last update."""
        self.updates = 0
        """The number of updates so far."""
        self._reader = reader
        self._writer = writer
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._text = ""
        self._to_text = codecs.getincrementaldecoder("utf-8")()
        self._from_json = json.JSONDecoder()
        self._updated = asyncio.Event()
        self._locked = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> DatabaseSession:
        """Connect to the server. Raises DatabaseLost."""
        try:
            async with asyncio.timeout(CONNECT_S):
                return cls(*await asyncio.open_unix_connection(path))
        except FileNotFoundError as error:
            raise DatabaseLost(f"Open vSwitch does not run: {path} does not exist") from error
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
            raise DatabaseLost(f"{path} cannot be connected: {reason}") from error

    async def serve(self) -> None:
        """Receive until the connection ends. Raises DatabaseLost."""
        silent = 0
        try:
            while True:
                try:
                    async with asyncio.timeout(ECHO_S):
                        message = await self._receive()
                except TimeoutError:
                    silent += 1
                    if silent > 1:
                        raise DatabaseLost(f"the database server sent nothing for {2 * ECHO_S:.0f} s") from None
                    self._send({"method": "echo", "params": [], "id": "echo"})
                    continue
                silent = 0
                self._take(message)
        except (OSError, EOFError) as error:
            raise DatabaseLost(CLOSED) from error
        finally:
            for result in self._waiting.values():
                if not result.done():
                    result.set_exception(DatabaseLost(CLOSED))
                    result.exception()  # an error that nobody asked for is not logged by asyncio
            self.close()
            self._updated.set()

    def close(self) -> None:
        self._writer.close()

    async def monitor(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Keep a copy of these columns by table. Raises DatabaseLost, DatabaseRefused."""
        wanted = {table: {"columns": list(names)} for table, names in columns.items()}
        self._update(await self._request("monitor", [DATABASE, _MONITOR, wanted]))

    async def transact(self, operations: Sequence[Operation]) -> list[Any]:
        """Do all operations, or none. Returns their results. Raises DatabaseLost, DatabaseRefused."""
        results: list[Any] = await self._request("transact", [DATABASE, *operations])
        for each in results:  # a failure of the commit is one more result
            if isinstance(each, dict) and "error" in each:
                raise DatabaseRefused(f"the database refused a transaction: {each.get('details') or each['error']}")
        return results

    async def lock(self, name: str) -> bool:
        """Ask for a lock, of which a session has one at most, until it ends. Returns whether no other session has it;
        `until_locked` waits for the end of the others. Raises DatabaseLost, DatabaseRefused."""
        reply = await self._request("lock", [name])
        if reply["locked"]:
            self._locked.set()
        return self._locked.is_set()

    async def until_locked(self) -> None:
        """Wait until this session has the lock that it asked for."""
        await self._locked.wait()

    async def until(self, holds: Callable[[Rows], bool]) -> None:
        """Wait until the copy has what is asked for. Raises DatabaseLost."""
        while not holds(self.rows):
            await self.updated(self.updates)

    async def updated(self, seen: int) -> None:
        """Wait until there have been more updates of the copy than `seen`. Raises DatabaseLost."""
        while self.updates <= seen:
            if self._writer.is_closing():
                raise DatabaseLost(CLOSED)
            await self._updated.wait()

    async def _request(self, method: str, parameters: Sequence[Any]) -> Any:
        number = next(self._ids)
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = result
        try:
            self._send({"method": method, "params": parameters, "id": number})
            async with asyncio.timeout(REPLY_S):
                return await result
        except TimeoutError as error:
            raise DatabaseLost(f"the database server did not answer within {REPLY_S:.0f} s") from error
        finally:
            del self._waiting[number]

    def _send(self, message: Mapping[str, Any]) -> None:
        """Requests are small and few, so the transport's buffer bounds them without a wait."""
        if self._writer.is_closing():  # uvloop raises RuntimeError for a write to a closed transport
            raise DatabaseLost(CLOSED)
        self._writer.write(msgspec.json.encode(message))

    def _take(self, message: Mapping[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method == "echo":
            self._send({"result": message.get("params"), "error": None, "id": number})
        elif method == "update":
            self._update(message["params"][1])
        elif method == "locked":
            self._locked.set()
        elif method == "stolen":
            raise DatabaseLost("another client of the database took the lock by force")
        elif (result := self._waiting.get(number)) is not None and not result.done():  # type: ignore[arg-type]
            if message.get("error") is None:
                result.set_result(message.get("result"))
            else:
                result.set_exception(DatabaseRefused(f"the database refused a request: {message['error']}"))

    def _update(self, changes: Mapping[str, Mapping[str, Mapping[str, Row]]]) -> None:
        for table, rows in changes.items():
            held = self.rows.setdefault(table, {})
            for uuid, change in rows.items():
                if "new" in change:
                    held[uuid] = change["new"]
                else:
                    held.pop(uuid, None)
        self.updates += 1
        self._updated.set()
        self._updated = asyncio.Event()

    async def _receive(self) -> dict[str, Any]:
        """The next message. Messages follow one another without a separator."""
        while True:
            if self._text:
                try:
                    message, end = self._from_json.raw_decode(self._text)
                except json.JSONDecodeError:
                    pass  # the rest of it is still to come
                else:
                    self._text = self._text[end:].lstrip()
                    if not isinstance(message, dict):
                        raise DatabaseLost("the database server does not speak JSON-RPC")
                    return message
            if len(self._text) > MESSAGE_MAX:
                raise DatabaseLost(f"the database server sent a message of more than {MESSAGE_MAX} characters")
            data = await self._reader.read(CHUNK)
            if not data:
                raise EOFError
            self._text += self._to_text.decode(data)

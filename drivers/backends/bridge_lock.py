"""The lock of a bridge: at most one agent serves it.

Two agents would undo each other's flows and ports. The lock is one of the switch's database (RFC 7047, section 4.1.8),
which every agent of the bridge reaches, whatever its folder, container or namespace of processes is. The database
server releases it when the session of its agent ends, and so when the process dies. A file lock would not exclude an
agent with another folder, nor hold when the folder of the switch's sockets is made anew.

While the database server is away, the agent goes on. Other agents cannot get the lock meanwhile. One that waited before
asks again only after the agent had the time to come back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from pathlib import Path

from drivers.backends.connection import RECONNECT_LAST_S, Connection
from drivers.ovsdb.session import CONNECT_S, DatabaseLost, DatabaseRefused, DatabaseSession
from eventstore.errors import FatalError

logger = logging.getLogger(__name__)

RETURN_S = RECONNECT_LAST_S + CONNECT_S
"""The time that the agent of a bridge has to come back to a database server that was away."""


class BridgeTaken(FatalError):
    """Another agent serves the bridge now."""


class BridgeLock:
    """The lock of one bridge. `run` asks for it and keeps it."""

    def __init__(self, bridge: str, database: Path, *, rng: random.Random) -> None:
        self.is_waiting = False
        """Whether another agent has the lock, as far as is known."""
        self._bridge = bridge
        self._database = database
        self._connection: Connection[DatabaseSession] = Connection(rng)
        self._acquired = asyncio.Event()

    @property
    def sessions(self) -> int:
        """The number of sessions that had the lock."""
        return self._connection.count

    async def acquired(self) -> None:
        """Wait until this process has the lock for the first time."""
        await self._acquired.wait()

    async def run(self) -> None:
        """Keep the lock until cancelled. Raises BridgeTaken if another agent got it while the database was away."""
        while True:
            try:
                await self._serve()
            except DatabaseLost as lost:
                if self._connection.lost(str(lost), asyncio.get_running_loop().time()):
                    about = {"bridge": self._bridge, "reason": str(lost)}
                    logger.warning("the lock of the bridge cannot be asked for, retrying", extra=about)
            await asyncio.sleep(self._connection.wait_s())

    async def _serve(self) -> None:
        """Ask for the lock and keep it while the session lasts. Raises DatabaseLost, BridgeTaken."""
        session = await DatabaseSession.open(self._database)
        ended: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(session.serve())
                tasks.create_task(self._lock(session))
        except* BridgeTaken as taken:
            ended += taken.exceptions
        except* DatabaseLost as lost:
            ended += lost.exceptions
        finally:
            session.close()
        raise ended[0]

    async def _lock(self, session: DatabaseSession) -> None:
        if self.is_waiting:
            await asyncio.sleep(RETURN_S)
        try:
            is_locked = await session.lock(lock_name(self._bridge))
        except DatabaseRefused as error:
            raise DatabaseLost(str(error)) from error
        if not is_locked:
            if self._acquired.is_set():
                raise BridgeTaken(f"bridge {self._bridge}: another agent serves it now, each bridge has one agent")
            if not self.is_waiting:
                about = {"bridge": self._bridge}
                logger.warning("another agent serves the bridge, this one waits until that has ended", extra=about)
            self.is_waiting = True
            await session.until_locked()
        self.is_waiting = False
        self._connection.opened(session, asyncio.get_running_loop().time())
        logger.info("bridge locked for this agent", extra={"bridge": self._bridge})
        self._acquired.set()


def lock_name(bridge: str) -> str:
    """The name of the lock of a bridge: letters, digits and underscores, as the database wants it."""
    return "dpuplane_bridge_" + re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", bridge)

"""Watch: the changes of a list after a position, as a stream of batches that each end with a position.

A watcher buffers only the keys of the items that it has not sent: an item that changes again is sent once, in its
latest state. A watcher that falls behind the shared ring of changes is told that its position has expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Any

from commands import results
from commands.queries.fold_reader import FoldReader
from commands.queries.position_waiter import PositionWaiter
from commands.rpc.middleware import Call
from commands.streams.change_feed import ChangeFeed
from commands.streams.lasting import LastingStreams, StreamEnded
from commands.streams.watched_lists import Item, WatchedList, watched_list
from eventstore.log import Partition
from eventstore.position import InvalidPosition, from_token
from eventstore.replicas.folded_log import FoldedLog
from eventstore.replicas.replica import Replica
from schemas.api import dpuplane_pb2 as pb

_CHANGES_PER_MESSAGE = 200
BOOKMARK_S = 2.0
"""Minimum time between two responses without changes, which tell a watcher the new position only. The log may advance a
thousand times per second."""
EVERY_LIST = (
    pb.WatchRequest(nodes=pb.ListNodesRequest()),
    pb.WatchRequest(dpus=pb.ListDpusRequest()),
    pb.WatchRequest(cliques=pb.ListCliquesRequest()),
)
PAUSE_S = 0.1
"""Time between two batches, in which changes of one item are merged."""


class Watches:
    """The watches of one replica."""

    def __init__(
        self, replica: Replica, reader: FoldReader, position_waiter: PositionWaiter, streams: LastingStreams
    ) -> None:
        self._replica = replica
        self._reader = reader
        self._position_waiter = position_waiter
        self._streams = streams
        self._feed = ChangeFeed(replica)

    async def run(self) -> None:
        """Collect changes for ever, even while there is no watcher: a client may watch from the position of a list that
        it read earlier."""
        await self._replica.ready()
        tables = [each for request in EVERY_LIST for each in watched_list(self._reader, request).tables]
        self._feed.collect(tables)
        with self._replica.watch(*{partition.topic for partition, _ in tables}) as advanced:
            while True:
                partitions = await advanced.changed()
                self._feed.collect(each for each in tables if each[0] in partitions)
                await asyncio.sleep(PAUSE_S)

    async def watch(self, request: pb.WatchRequest, call: Call) -> AsyncGenerator[pb.WatchResponse, None]:
        watched = watched_list(self._reader, request)
        topics = {partition.topic for partition in watched.partitions}
        with self._streams.opened() as until_s, self._replica.watch(*topics) as advanced:
            await self._position_waiter.wait_for_token(request.position, topics, call.timeout_s)
            watcher = Watcher(watched, self._feed, self._replica, self._start(watched, request.position))
            while True:
                if (response := watcher.next_response(asyncio.get_running_loop().time())) is not None:
                    yield response
                if watcher.has_pending:
                    await asyncio.sleep(0)
                    continue
                try:
                    await self._streams.wait(advanced.changed, until_s)
                    await self._streams.wait(lambda: asyncio.sleep(PAUSE_S), until_s)
                except StreamEnded:
                    return

    def _start(self, watched: WatchedList, token: str) -> dict[Partition, int]:
        """The position in each partition of the list. Raises InvalidPosition."""
        if not token:
            return {partition: self._replica.position(partition) for partition in watched.partitions}
        offsets = from_token(token, self._replica.log_id).offsets
        if missing := [partition for partition in watched.partitions if partition not in offsets]:
            raise InvalidPosition(
                f"position: it has no offset of {missing[0]}; give the position of a response of this list"
            )
        return {partition: offsets[partition] for partition in watched.partitions}


class Watcher:
    """One watch: its position in each partition, and the items that it has not sent. Its methods never await."""

    def __init__(
        self, watched: WatchedList, feed: ChangeFeed, replica: FoldedLog, cursor: dict[Partition, int]
    ) -> None:
        self._watched = watched
        self._feed = feed
        self._replica = replica
        self._cursor = cursor
        self._pending: dict[Item, Any] = {}
        self._sent: dict[Partition, int] | None = None
        self._sent_s = 0.0

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def next_response(self, now_s: float) -> pb.WatchResponse | None:
        """The changes up to now, as many as fit one message; None if nothing is to be sent. Raises PositionExpired."""
        self._advance()
        items = [*islice(self._pending, _CHANGES_PER_MESSAGE)]
        changes = [self._watched.change(item, self._pending.pop(item)) for item in items]
        is_late = self._sent is None or now_s >= self._sent_s + BOOKMARK_S or not self._watched.tables
        if not changes and (self._sent == self._cursor or not is_late):
            return None
        if self._pending:
            return pb.WatchResponse(changes=changes)
        self._sent, self._sent_s = dict(self._cursor), now_s
        return pb.WatchResponse(changes=changes, position=results.token(self._replica.log_id, self._cursor))

    def _advance(self) -> None:
        """Take over the changes since the last call, and advance the cursor to the present position of the states."""
        for partition, table_of in self._watched.tables:
            changes = self._feed.ring(partition, table_of).since(self._cursor[partition])
            for key, removed in changes.items():
                item = self._watched.item_of(partition, key)
                self._pending[item] = removed if removed is not None else self._pending.get(item)
        for partition in self._cursor:
            self._cursor[partition] = self._replica.position(partition)

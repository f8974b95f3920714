"""Cuts of the log as of a point in the past.

A cut has an offset for every partition. The log folded up to a cut is the state of the whole plane at that point.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from eventstore.as_of import AsOf, format_time
from eventstore.errors import PermanentError
from eventstore.folding.origin import read_first
from eventstore.log import FLEET_0, EventLog, Partition
from eventstore.position import from_token
from eventstore.recovery.replay import cut_at_position, cut_at_time, time_before


class Cut(NamedTuple):
    """The next offset of every partition as of a point in the past, and the time of that point."""

    offsets: Mapping[Partition, int]
    time_ms: int


async def cut_of(log: EventLog, log_id: str, topics: Collection[str], as_of: AsOf) -> Cut:
    """The cut of these topics as of a position or a time. Raises PermanentError if the log lacks that point."""
    try:
        if isinstance(as_of, int):
            offsets, time_ms = await cut_at_time(log, topics, as_of), as_of
        else:
            named = from_token(as_of, log_id).offsets
            offsets = await cut_at_position(log, topics, named)
            time_ms = await time_before(log, named)
    except PermanentError as error:
        raise PermanentError(f"as_of: {error}") from error
    if isinstance(as_of, int) and offsets.get(FLEET_0) == 0:
        first = (await read_first(log, {FLEET_0: 0}))[FLEET_0]
        raise PermanentError(
            f"as_of: {format_time(as_of)} is before the first record of this log, at {format_time(first.timestamp_ms)}"
        )
    return Cut(offsets, time_ms)

"""Where a moment of the past cuts the log.

A cut has an offset for every partition, so that what is folded up to it is the whole plane as it stood then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from eventstore.errors import PermanentError
from eventstore.folding.origin import read_first
from eventstore.log import FLEET_0, EventLog, Partition
from eventstore.moment import Moment, shown
from eventstore.position import from_token
from eventstore.recovery.replay import cut_at_position, cut_at_time, time_before


class Cut(NamedTuple):
    """The next offset of every partition at a moment, and the moment's time."""

    offsets: Mapping[Partition, int]
    time_ms: int


async def cut_of(log: EventLog, log_id: str, topics: Collection[str], moment: Moment) -> Cut:
    """Where a moment cuts these topics. Raises PermanentError if the log has no such moment."""
    try:
        if isinstance(moment, int):
            offsets, time_ms = await cut_at_time(log, topics, moment), moment
        else:
            named = from_token(moment, log_id).offsets
            offsets = await cut_at_position(log, topics, named)
            time_ms = await time_before(log, named)
    except PermanentError as error:
        raise PermanentError(f"at: {error}") from error
    if isinstance(moment, int) and offsets.get(FLEET_0) == 0:
        first = (await read_first(log, {FLEET_0: 0}))[FLEET_0]
        raise PermanentError(f"at: {shown(moment)} is before this log begins, at {shown(first.timestamp_ms)}")
    return Cut(offsets, time_ms)

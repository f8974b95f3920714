"""A cache of encoded frames. Zones with the same rule list share a frame for each base version, so it is encoded once
for all of their links.

The smaller one of delta and snapshot is sent. The size of a snapshot is only computed for comparison if the delta is
large and the whole table may be smaller.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from drivers.relays.rule_source import CurrentTable, RuleSource
from drivers.wire import relay_messages
from projections.rules.rule import size

SMALL_BYTES = 4_096
"""A delta up to this size is sent without a comparison with a snapshot."""

CACHE_BYTES_MAX = 64 * 1024 * 1024
PREFIX_BYTES = 5
ENTRY_BYTES = 512
"""Overhead of a frame in the cache. It counts towards the limit, so that many small frames cannot fill the memory: DPUs
may claim to have any version, and each version needs a frame of its own."""


class EncodedFrame(NamedTuple):
    """An encoded frame and its target version."""

    data: bytes
    version: int
    is_snapshot: bool


class FrameCache:
    """The encoded frames of the current tables, by rule list and base version."""

    def __init__(self, source: RuleSource) -> None:
        self.encoded = 0
        self._source = source
        self._frames: OrderedDict[tuple[object, int, int], EncodedFrame] = OrderedDict()
        self._bytes = 0

    def frame(self, zone: str, current: CurrentTable, since: int, stage: int = 0) -> EncodedFrame:
        """The frame from version `since` (0: the empty table) to the current version of a zone's DPUs of a stage.

        `current` is the caller's last read of the zone. If the cache has no frame to `current`, the frame is computed
        from the present folds. The computed frame may lead to a later version than `current`. It is cached under the
        zone's present rule list.
        """
        frame = self._frames.get((current.key, current.version, since))
        return frame or self._get_or_encode(zone, self._source.current(zone, current.version, stage), since, stage)

    def _get_or_encode(self, zone: str, now: CurrentTable, since: int, stage: int) -> EncodedFrame:
        key = (now.key, now.version, since)
        frame = self._frames.get(key)
        if frame is None:
            frame = self._encode(zone, now, since, stage)
            self._frames[key] = frame
            self._bytes += _cost(frame)
            while self._bytes > CACHE_BYTES_MAX and len(self._frames) > 1:
                self._bytes -= _cost(self._frames.popitem(last=False)[1])
        return frame

    def _encode(self, zone: str, now: CurrentTable, since: int, stage: int) -> EncodedFrame:
        delta = self._source.delta(zone, since, stage) if since else self._source.snapshot(zone, stage)
        large = delta is not None and size(delta) > max(SMALL_BYTES, PREFIX_BYTES * now.prefixes)
        if delta is None or (since and large):
            return self._get_or_encode(zone, now, 0, stage)
        self.encoded += 1
        data = relay_messages.encode_frame(self._source.epoch, delta)
        return EncodedFrame(data, delta.to_version, delta.from_version == 0)


def _cost(frame: EncodedFrame) -> int:
    return len(frame.data) + ENTRY_BYTES

"""The exact CIDR cover of a set of addresses: the fewest prefixes that hold each of them and no other address.

The cover has two implementations. `cover4`/`cover6` compute it whole, in numpy: every address is a block, and level by
level, neighbouring blocks that differ only in the level's bit merge. `Cover` maintains it under single changes: an
added address merges with its sibling prefix as long as there is one, and a removed address splits the prefix that holds
it. A single change costs the width of an address, whatever the size of the set. Both give the same result, because the
cover of a set is unique: it has no two siblings and no prefix inside another.

A prefix has two forms, a key and packed bytes. The key is the integer `address << 8 | length`. The packed bytes are the
big-endian address, then the length: 5 bytes for IPv4, 17 for IPv6. An array of IPv4 keys is of type uint64. An array of
IPv6 keys contains the packed bytes instead, because numpy has no integer of that size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from projections.rules.digests import digest_of

__all__ = [
    "SIZE4",
    "SIZE6",
    "Cover",
    "Keys",
    "Net",
    "any_holds",
    "count_addresses",
    "cover4",
    "cover6",
    "diff",
    "digest_of",
    "holder_in",
    "keys_of",
    "networks",
    "pack",
    "pack_ints",
    "unpack",
]

WIDTH4, WIDTH6 = 32, 128
SIZE4, SIZE6 = 5, 17

Keys: TypeAlias = npt.NDArray[Any]
"""Prefixes, each once, in order: uint64 keys for IPv4, S17 for IPv6."""

NO_KEYS4: Keys = np.empty(0, np.uint64)
NO_KEYS6: Keys = np.empty(0, "S17")


def cover4(addresses: npt.NDArray[np.uint32]) -> Keys:
    """The exact cover of these addresses, which may repeat and come in any order."""
    blocks = _ordered4(addresses)
    lengths = np.full(len(blocks), WIDTH4, np.uint8)
    index, at = np.arange(len(blocks), dtype=np.int32), blocks
    for level in range(WIDTH4):
        first = np.flatnonzero((at[1:] ^ at[:-1]) == np.uint32(1 << level))
        if not len(first):
            break
        lengths[index[first + 1]] = 255
        index, at = index[first], at[first]
        lengths[index] = WIDTH4 - level - 1
    kept = lengths != 255
    keys: Keys = blocks[kept].astype(np.uint64) << np.uint64(8) | lengths[kept]
    return keys


def cover6(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Keys:
    """The exact cover of these addresses, given as their upper and lower 64 bits."""
    blocks_high, blocks_low = _ordered6(high, low)
    lengths = np.full(len(blocks_low), WIDTH6, np.uint8)
    index, at_high, at_low = np.arange(len(blocks_low), dtype=np.int32), blocks_high, blocks_low
    for level in range(64):  # a block of the upper half would take 2**64 addresses
        bit = np.uint64(1 << level)
        first = np.flatnonzero(((at_low[1:] ^ at_low[:-1]) == bit) & (at_high[1:] == at_high[:-1]))
        if not len(first):
            break
        lengths[index[first + 1]] = 255
        index, at_high, at_low = index[first], at_high[first], at_low[first]
        lengths[index] = WIDTH6 - level - 1
    kept = lengths != 255
    return _packed6(blocks_high[kept], blocks_low[kept], lengths[kept])


def _ordered4(addresses: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Ascending, without duplicates. (`np.unique` hashes integers: ten times slower here.)"""
    if bool((addresses[1:] > addresses[:-1]).all()):
        return addresses
    found = np.sort(addresses)
    return found[np.concatenate(([True], found[1:] != found[:-1]))]


def _ordered6(
    high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    later = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
    if bool(later.all()):
        return high, low
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    fresh = np.concatenate(([True], (high[1:] != high[:-1]) | (low[1:] != low[:-1])))
    return high[fresh], low[fresh]


def _packed6(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint8]) -> Keys:
    packed = np.empty((len(high), SIZE6), np.uint8)
    packed[:, :8] = high.astype(">u8").view(np.uint8).reshape(-1, 8)
    packed[:, 8:16] = low.astype(">u8").view(np.uint8).reshape(-1, 8)
    packed[:, 16] = lengths
    keys: Keys = packed.reshape(-1).view("S17")
    return keys


def pack(keys: Keys) -> bytes:
    """Keys of either family as packed bytes."""
    if keys.dtype != np.uint64:
        return keys.tobytes()
    return keys.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 3:].tobytes()


def pack_ints(keys: Iterable[int], size: int) -> bytes:
    """Integer keys as packed bytes of `size` each, in the order given."""
    return b"".join([key.to_bytes(size, "big") for key in keys])


def unpack(packed: bytes, size: int) -> list[int]:
    """Packed prefixes as integer keys."""
    return [int.from_bytes(packed[i : i + size], "big") for i in range(0, len(packed), size)]


def keys_of(packed: bytes, size: int) -> Keys:
    """Packed prefixes as an array of keys, in the order given."""
    if size == SIZE6:
        return np.frombuffer(packed, "S17")
    rows = np.zeros((len(packed) // SIZE4, 8), np.uint8)
    rows[:, 3:] = np.frombuffer(packed, np.uint8).reshape(-1, SIZE4)
    keys: Keys = rows.reshape(-1).view(">u8").astype(np.uint64)
    return keys


def holder_in(keys: Keys, address: int, width: int) -> int | None:
    """The key of the prefix of a cover that holds this address, None if no prefix does. Only the last prefix that
    begins at or before the address can hold it."""
    if width == WIDTH4:
        place = int(np.searchsorted(keys, np.uint64(address << 8 | 255), "right"))
    else:
        place = int(np.searchsorted(keys, np.bytes_(address.to_bytes(16, "big") + b"\xff"), "right"))
    if not place:
        return None
    found = keys[place - 1]
    key = int(found) if width == WIDTH4 else int.from_bytes(bytes(found).ljust(SIZE6, b"\0"), "big")
    return key if any_holds([key], address, width) else None


def any_holds(keys: Iterable[int], address: int, width: int) -> bool:
    """Whether any of these prefixes holds an address."""
    return any(((key >> 8) ^ address) >> width - (key & 255) == 0 for key in keys)


def count_addresses(packed: bytes, size: int) -> int:
    """The number of addresses that packed prefixes hold."""
    width = WIDTH4 if size == SIZE4 else WIDTH6
    lengths = np.bincount(np.frombuffer(packed, np.uint8)[size - 1 :: size], minlength=1).tolist()
    return sum(count << (width - length) for length, count in enumerate(lengths) if count)


def networks(packed4: bytes, packed6: bytes) -> Iterator[IPv4Network | IPv6Network]:
    """Packed prefixes as readable text."""
    for key in unpack(packed4, SIZE4):
        yield IPv4Network((key >> 8, key & 255))
    for key in unpack(packed6, SIZE6):
        yield IPv6Network((key >> 8, key & 255))


def diff(old: Keys, new: Keys) -> tuple[Keys, Keys]:
    """Added and removed prefixes between two covers of one family."""
    if not len(old) or not len(new):
        return new, old
    return new[~_inside(new, old)], old[~_inside(old, new)]


def _inside(wanted: Keys, ordered: Keys) -> npt.NDArray[np.bool_]:
    place = np.searchsorted(ordered, wanted)
    place[place == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[place] == wanted
    return found


class Cover:
    """A cover of one family under single changes: `keys` is its prefixes as integer keys."""

    __slots__ = ("keys", "width")

    def __init__(self, width: int, keys: Iterable[int] = ()) -> None:
        self.width = width
        self.keys = set(keys)

    def add(self, address: int, net: Net) -> None:
        """Add an address that is not covered yet."""
        keys, width, base, bit = self.keys, self.width, address, 1
        length = width
        while length and (sibling := (base ^ bit) << 8 | length) in keys:
            keys.remove(sibling)
            net.remove(sibling)
            base &= ~bit
            bit <<= 1
            length -= 1
        keys.add(base << 8 | length)
        net.add(base << 8 | length)

    def remove(self, address: int, net: Net) -> None:
        """Remove an address that is covered."""
        keys, base, length = self.keys, address, self.width
        while (base << 8 | length) not in keys:
            assert length, f"{address} is not covered"
            length -= 1
            base &= ~(1 << (self.width - length - 1))
        keys.remove(base << 8 | length)
        net.remove(base << 8 | length)
        while length < self.width:
            length += 1
            bit = 1 << (self.width - length)
            sibling = ((address & -bit) ^ bit) << 8 | length
            keys.add(sibling)
            net.add(sibling)


class Net:
    """The net change of prefixes: a prefix that was added and removed again counts as unchanged."""

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.added: set[int] = set()
        self.removed: set[int] = set()

    def add(self, key: int) -> None:
        if key in self.removed:
            self.removed.remove(key)
        else:
            self.added.add(key)

    def remove(self, key: int) -> None:
        if key in self.added:
            self.added.remove(key)
        else:
            self.removed.add(key)

"""Incremental digests of rule tables. Each prefix, together with its rule, is hashed to a number.

The digest of a table is the sum of the numbers of its prefixes, modulo 2^128. After a change, the control plane and the
device each add the numbers of the added prefixes and subtract the numbers of the removed ones. Then their digests are
compared. The digest detects a prefix that is lost, duplicated or under the wrong rule. It is no defence against an
attacker who chooses the prefixes. The number of a prefix has two lanes of 64 bits. Each lane is a hash of the prefix by
splitmix64's finaliser, with salts that depend on the rule, the address family and the lane. That function runs in numpy
and on single integers, with equal results.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

RuleText: TypeAlias = tuple[int, str, str, tuple[int, ...]]
"""Priority, action, protocol, ports: a `Rule`, or a device's copy of these fields."""

_MASK64 = (1 << 64) - 1
_MASK128 = (1 << 128) - 1
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_NUMPY_MIN = 24
"""Up to this many prefixes, single integers are faster than numpy."""


def digest_of(rule: RuleText, packed4: bytes, packed6: bytes) -> int:
    """The sum of the numbers of these prefixes under this rule."""
    salts = _salts(tuple(rule))
    return (_family(packed4, 5, salts[0]) + _family(packed6, 17, salts[1])) & _MASK128


def to_bytes(digest: int) -> bytes:
    """A digest as frames and saved states encode it: 16 bytes, big-endian."""
    return (digest & _MASK128).to_bytes(16, "big")


Salts: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
"""Per lane, the salt before the first round and the one after it."""


@lru_cache(maxsize=1024)
def _salts(rule: RuleText) -> tuple[Salts, Salts]:
    text = repr((rule[0], rule[1], rule[2], tuple(rule[3]))).encode()
    seed = blake2b(text, digest_size=64, person=b"dpuplane-rules").digest()
    words = [int.from_bytes(seed[i : i + 8], "big") for i in range(0, 64, 8)]
    return ((words[0], words[1]), (words[2], words[3])), ((words[4], words[5]), (words[6], words[7]))


def _family(packed: bytes, size: int, salts: Salts) -> int:
    count = len(packed) // size
    if count > _NUMPY_MIN:
        return _many(_words(packed, size), salts)
    total = 0
    for i in range(count):
        total += _one(packed[i * size : i * size + size], salts)
    return total


def _one(packed: bytes, salts: Salts) -> int:
    words = [int.from_bytes(packed[max(0, i - 8) : i], "big") for i in range(len(packed), 0, -8)]
    lanes = 0
    for before, after in salts:
        value = before
        for word in words:
            value = _mix(value ^ word)
        lanes = lanes << 64 | _mix((value + after) & _MASK64)
    return lanes


def _mix(value: int) -> int:
    value = (value ^ (value >> 30)) * _M1 & _MASK64
    value = (value ^ (value >> 27)) * _M2 & _MASK64
    return value ^ (value >> 31)


def _words(packed: bytes, size: int) -> list[npt.NDArray[np.uint64]]:
    """The packed bytes of every prefix as 64-bit words, from the last word to the first. The first word is padded with
    zeros on its left."""
    rows = np.frombuffer(packed, np.uint8).reshape(-1, size)
    padded = np.zeros((len(rows), -(-size // 8) * 8), np.uint8)
    padded[:, padded.shape[1] - size :] = rows
    words = padded.view(">u8").astype(np.uint64)
    return [np.ascontiguousarray(words[:, i]) for i in range(words.shape[1] - 1, -1, -1)]


def _many(words: list[npt.NDArray[np.uint64]], salts: Salts) -> int:
    total = 0
    for lane, (before, after) in enumerate(salts):
        value = np.full(len(words[0]), before, np.uint64)
        for word in words:
            value = _mix_many(value ^ word)
        total += _sum(_mix_many(value + np.uint64(after))) << (64 if lane == 0 else 0)
    return total


def _mix_many(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value ^= value >> np.uint64(30)
    value *= np.uint64(_M1)
    value ^= value >> np.uint64(27)
    value *= np.uint64(_M2)
    value ^= value >> np.uint64(31)
    return value


def _sum(values: npt.NDArray[Any]) -> int:
    """The exact sum of uint64 values, which numpy alone would take modulo 2^64."""
    low = int((values & np.uint64(0xFFFFFFFF)).sum(dtype=np.uint64))
    return (int((values >> np.uint64(32)).sum(dtype=np.uint64)) << 32) + low

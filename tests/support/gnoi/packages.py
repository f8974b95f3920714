"""Packages as gnxi's server takes them: messages with a version, content, and a checksum of both."""

from __future__ import annotations

import hashlib

_COOKIE = b"cookiestring"


def package(version: str, size: int = 3_000_000, *, is_compatible: bool = True, is_whole: bool = True) -> bytes:
    """The package of a version, with `size` bytes of content."""
    padding = bytes(range(251)) * (size // 251 + 1)
    padding = padding[:size]
    checked = version.encode() + _COOKIE + padding + bytes([not is_compatible])
    digest = hashlib.sha256(checked if is_whole else b"").digest()
    content = _field(1, version.encode()) + _field(2, _COOKIE) + _field(3, padding) + _field(4, digest)
    return content + (b"" if is_compatible else bytes([5 << 3, 1]))


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])

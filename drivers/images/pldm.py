"""Firmware packages of PLDM (DMTF DSP0267, versions 1.0 to 1.2): the versions of their components, from the header.

A header is little-endian: an identifier, its revision and size, the version of the package, the records of the devices
that it fits, and a record of each component. A CRC-32 is its end.
"""

from __future__ import annotations

import struct
import zlib

PACKAGE = "package"
"""The name of the version of the whole package."""
IDENTIFIERS = {
    bytes.fromhex("f018878ccb7d49439800a02f059aca02"): 1,
    bytes.fromhex("1244d2648d7d4718a030fc8a56587d5a"): 2,
    bytes.fromhex("3119ce2fe80a4a99af6d46f8b121f6bf"): 3,
}
"""The identifiers of headers, with their revisions."""
_BEGIN = struct.Struct("<16sBH13sHBB")
_COMPONENT = struct.Struct("<HHIHHIIBB")
_HEADER_MAX = 1 << 16
_VERSION_MAX = 64


class PackageReader:
    """Reads the header of a file that may be a package, while the file arrives. Other files have no versions."""

    def __init__(self) -> None:
        self._header = bytearray()

    def feed(self, data: bytes) -> None:
        self._header += data[: _HEADER_MAX - len(self._header)]

    def finish(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        """The version of the package, and those of its components by their number and identifier."""
        try:
            return _versions(bytes(self._header))
        except (struct.error, IndexError, UnicodeDecodeError):
            return {}


def _versions(data: bytes) -> dict[str, str]:
    identifier, revision, size, _, _, _, length = _BEGIN.unpack_from(data)
    if IDENTIFIERS.get(identifier) != revision or not _BEGIN.size < size <= len(data):
        return {}
    header, checksum = data[: size - 4], int.from_bytes(data[size - 4 : size], "little")
    if zlib.crc32(header) != checksum:
        return {}
    found = {PACKAGE: header[_BEGIN.size : _BEGIN.size + length].decode()}
    at = _BEGIN.size + length
    for _ in range(2 if revision >= 2 else 1):  # of devices, and of those behind them
        count, at = header[at], at + 1
        for _ in range(count):
            at += struct.unpack_from("<H", header, at)[0]
    count, at = struct.unpack_from("<H", header, at)[0], at + 2
    for number in range(count):
        _, name, *_, length = _COMPONENT.unpack_from(header, at)
        at += _COMPONENT.size
        found[f"component-{number}-{name:#06x}"] = header[at : at + length].decode()
        at += length
        if revision >= 3:
            at += 4 + struct.unpack_from("<I", header, at)[0]
    return {name: text for name, text in found.items() if text.isprintable() and 0 < len(text) <= _VERSION_MAX}


def made_package(version: str, components: list[tuple[int, str]], content: bytes = b"") -> bytes:
    """A package with these components by identifier, for tests and for simulated devices."""
    text = version.encode()
    body = text + b"\0" + struct.pack("<H", len(components))
    for identifier, component in components:
        encoded = component.encode()
        body += _COMPONENT.pack(10, identifier, 0, 0, 0, 0, len(content), 1, len(encoded)) + encoded
    size = _BEGIN.size + len(body) + 4
    header = _BEGIN.pack(next(iter(IDENTIFIERS)), 1, size, bytes(13), 8, 1, len(text)) + body
    return header + struct.pack("<I", zlib.crc32(header)) + content

"""BFB files, the boot streams of BlueField: a check of their structure while they arrive, and their versions.

A boot stream is a sequence of images. Each has a header of 24 bytes, little-endian, with a magic number, the id, length
and CRC-32 of the image (which covers its padding to 8 bytes), and a bitmap of the ids that follow. The versions are in
a Redfish inventory that the stream contains as plain text, from the words "This JSON represents" to the member count
(Mellanox/bfscripts: mlx-mkbfb; DOCA Platform Framework: VersionFromBFBFile). An older stream has no inventory.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from eventstore.errors import TransientError

MAGIC = 0x13026642
"""The first four bytes of each header: "Bf" and the bytes 2 and 19."""
HEADER = struct.Struct("<QQQ")

_MAJOR = 1
_WORDS = HEADER.size // 8
_PAD = 8
_BEGIN, _END = b"This JSON represents", b'"Members@odata.count"'
_INVENTORY_MAX = 512 * 1024
"""Maximum size of an inventory in bytes; a typical one has 20 kB."""
_LINE_MAX = 256
"""Maximum length of the line with the words, up to them."""
_NAMES = {"bsp": "BSP", "doca": "DOCA", "uefi": "UEFI", "atf": "ATF"}
_DOCA = re.compile(r"(\d+)\.(\d+)\.(\d)\d*")
_VERSION_MAX = 64


class BadImage(TransientError):
    """A file is not a valid image. Another download may bring a valid one."""


class BfbReader:
    """Checks a boot stream piece by piece. Bytes after the last image are allowed: a file may have a configuration at
    its end, as installers accept it."""

    def __init__(self) -> None:
        self.images = 0
        self._header = bytearray()
        self._left = 0
        self._crc = 0
        self._wanted_crc = 0
        self._is_trailing = False
        self._tail = b""
        self._inventory = bytearray()
        self._has_begun = False
        self._versions: dict[str, str] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file. Raises BadImage."""
        self._search(data)
        view = memoryview(data)
        while view and not self._is_trailing:
            if self._left:
                part = view[: self._left]
                self._crc = zlib.crc32(part, self._crc)
                self._left -= len(part)
                view = view[len(part) :]
                if not self._left:
                    self._end_image()
            else:
                part = view[: HEADER.size - len(self._header)]
                self._header += part
                view = view[len(part) :]
                self._check_magic()
                if len(self._header) == HEADER.size and not self._is_trailing:
                    self._begin_image()

    def finish(self) -> None:
        """Check that the file is complete. Raises BadImage."""
        if self._left or not self.images or (self._header and not self._is_trailing):
            raise BadImage("is cut off: the last image of the BFB is not complete")

    def versions(self) -> dict[str, str]:
        """The versions of the parts by name; empty if the file has no inventory."""
        return self._versions or _versions(bytes(self._inventory))

    def _check_magic(self) -> None:
        magic = MAGIC.to_bytes(4, "little")
        if bytes(self._header[:4]) != magic[: len(self._header)]:
            if not self.images:
                raise BadImage("is not a BFB: it does not begin with the header of a boot stream")
            self._is_trailing = True

    def _begin_image(self) -> None:
        first, second, _ = HEADER.unpack(self._header)
        self._header.clear()
        if (first >> 32) & 0xF != _MAJOR or (first >> 52) & 0xF != _WORDS:
            raise BadImage("is a BFB of a version that is not supported")
        length, self._wanted_crc, self._crc = second & 0xFFFFFFFF, second >> 32, 0
        self._left = (length + _PAD - 1) // _PAD * _PAD
        if not self._left:
            self._end_image()

    def _end_image(self) -> None:
        if self._crc != self._wanted_crc:
            raise BadImage(f"is damaged: image {self.images + 1} of the BFB does not have its checksum")
        self.images += 1

    def _search(self, data: bytes) -> None:
        """Keep what follows the last beginning of an inventory, until one has versions. Both may be spread over pieces,
        and images may contain the words by chance."""
        if self._versions:
            return
        window, added = self._tail + data, len(self._tail)
        searched = max(0, len(self._tail) - len(_BEGIN) + 1)
        while (found := window.find(_BEGIN, searched)) >= 0:
            self._keep(window[added:found])
            if versions := _versions(bytes(self._inventory)):
                self._versions = versions
                return
            added = max(window.rfind(b"\n", 0, found), window.rfind(b"\0", 0, found)) + 1
            searched, self._has_begun = found + len(_BEGIN), True
            self._inventory.clear()
        self._keep(window[added:])
        self._tail = window[-_LINE_MAX:]

    def _keep(self, data: bytes) -> None:
        if self._has_begun:
            self._inventory += data[: _INVENTORY_MAX - len(self._inventory)]


def _versions(inventory: bytes) -> dict[str, str]:
    """The versions in an inventory, which is an object without its braces."""
    text, mark, rest = inventory.partition(_END)
    if not mark:
        return {}
    lines = (text + mark + rest.partition(b"\n")[0]).decode("ascii", "ignore")
    body = "".join(letter for letter in lines if letter.isprintable()).strip().strip("{},")
    try:
        found: Any = json.loads("{" + body + "}")
        members = {str(each["Name"]): str(each["Version"]) for each in found["Members"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    versions = {}
    for name, part in _NAMES.items():
        version = members.get(part) or members.get(f"BF3_{part}") or members.get(f"BF2_{part}") or ""
        if name == "doca":
            version = doca_version(version)
        if version and version.isprintable() and len(version) <= _VERSION_MAX:
            versions[name] = version
    return versions


def doca_version(version: str) -> str:
    """The documented version of DOCA. The third number of an inventory also has the build: 2.9.3008 is 2.9.3."""
    found = _DOCA.match(version)
    return ".".join(found.groups()) if found else ""


def made_bfb(images: Iterable[tuple[int, bytes]], versions: Mapping[str, str] | None = None) -> bytes:
    """A boot stream with these images by id, for tests and for simulated devices. With `versions`, it has an inventory
    of these members."""
    parts = [*images]
    if versions is not None:
        parts.append((63, _inventory_of(versions)))
    stream = bytearray()
    for number, (image_id, content) in enumerate(parts):
        padded = content + b"\0" * (-len(content) % _PAD)
        following = sum({1 << each for each, _ in parts[number + 1 :] if each < 64})
        first = MAGIC | _MAJOR << 32 | 2 << 36 | _WORDS << 52 | image_id << 56
        stream += HEADER.pack(first, len(content) | zlib.crc32(padded) << 32, following) + padded
    return bytes(stream)


def _inventory_of(versions: Mapping[str, str]) -> bytes:
    members = [{"Id": name, "Name": name, "Version": version} for name, version in versions.items()]
    inventory = {"//": "This JSON represents the software of the image", "Members": members}
    lines = json.dumps(inventory | {"Members@odata.count": len(members)}, indent=2).splitlines()
    return "\n".join(["", *lines[1:-1], ""]).encode()

"""The file of revoked certificates: serial numbers, one per line, checked every second like the certificate files.

It fails closed: a process with an unreadable list does not start. A running process keeps its last valid list and loads
the next valid one. Until then its status and `dpuplane_revocations_unread` report the fault, and its log reports it
once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

from deploy.tls.certificates import BadCertificates
from projections.field_checks import quoted

logger = logging.getLogger(__name__)

CHECK_S = 1.0
"""Interval of checks of the file."""
BYTES_MAX = 4 << 20
"""Maximum number of bytes of the file: some 50,000 lines with comments. A device file has no end and would be read
forever."""
_SERIAL = re.compile(r"(?:0x)?([0-9a-f]{1,2}(?::[0-9a-f]{2})+|[0-9a-f]+)", re.IGNORECASE)
_DIGITS_MAX = 40
"""Maximum hexadecimal digits of a serial number: RFC 5280 allows at most 20 bytes."""


def parse_serial(text: str) -> int | None:
    """Parse a serial number in hexadecimal digits, with or without colons; None if it is invalid."""
    match = _SERIAL.fullmatch(text)
    digits = match[1].replace(":", "").lstrip("0") if match else ""
    return int(digits, 16) if 0 < len(digits) <= _DIGITS_MAX else None


def read_serials(path: Path) -> frozenset[int]:
    """The serial numbers in a file. Raises BadCertificates, which names the line."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(BYTES_MAX + 1)
    except OSError as error:
        raise BadCertificates(f"tls_revoked {path}: {error.strerror}") from error
    if len(raw) > BYTES_MAX:
        raise BadCertificates(f"tls_revoked {path}: must be at most {BYTES_MAX} bytes")
    found = set()
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), start=1):
        text = line.partition("#")[0].strip()
        serial = parse_serial(text)
        if serial is not None:
            found.add(serial)
        elif text:
            rule = "must be a serial number of 1 to 40 hexadecimal digits, as `dpuplane certs show` prints it"
            raise BadCertificates(f"tls_revoked {path}: line {number}: {quoted(text)} {rule}")
    return frozenset(found)


class Revocations:
    """The list in one file, read when created (raises BadCertificates) and whenever `refresh` finds it changed.
    `revoke` is called with each new list.
    """

    def __init__(self, path: Path, revoke: Callable[[frozenset[int]], None]) -> None:
        self._path = path
        self._stamp = self._read_stamp()
        self.serials = read_serials(path)
        self.fault = ""
        """Why the present file is invalid; empty if it is valid."""
        self._revoke = revoke
        revoke(self.serials)

    async def run(self) -> None:
        """Check the file every second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.refresh()

    def refresh(self) -> bool:
        """Read the file if it has changed. Returns whether it is valid and lists other serial numbers than before."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            serials = read_serials(self._path)
        except BadCertificates as error:
            self.fault = str(error)
            logger.error(
                "list of revoked certificates rejected, the previous one stays in use", extra={"reason": self.fault}
            )
            return False
        self.fault = ""
        if serials == self.serials:
            return False
        added, removed = len(serials - self.serials), len(self.serials - serials)
        logger.info("list of revoked certificates loaded", extra={"added": added, "removed": removed})
        self.serials = serials
        self._revoke(serials)
        return True

    def _read_stamp(self) -> tuple[int, int, int] | None:
        """Inode, time and size of the present file, to detect a change; None if there is no file."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

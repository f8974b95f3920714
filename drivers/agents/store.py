"""Storage of a DPU's last good table across restarts of its agent, so that forwarding resumes without the control
plane.

The file is replaced atomically (temporary file, sync, rename, sync of the folder). A file that is torn, has a wrong
hash, or belongs to another DPU is ignored, and the relay sends the whole table. A file from the DPU's former zone is
ignored too: its version may be higher than that of the present zone's table.
"""

from __future__ import annotations

import logging
import os
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import msgspec

from projections.rules.device_table import EMPTY_TABLE, DeviceTable, pack, unpack
from projections.rules.rule import Rule

logger = logging.getLogger(__name__)

HASH_BYTES = 16


class TableStore(Protocol):
    """Storage of an agent's table."""

    def load(self) -> DeviceTable:
        """The last saved table. The empty table if no table was saved, or the saved table is not valid."""
        ...

    def save(self, table: DeviceTable) -> None:
        """Replace the saved table. Raises OSError."""
        ...


class MemoryTableStore:
    """Storage in memory, for simulated devices."""

    def __init__(self) -> None:
        self._table = EMPTY_TABLE

    def load(self) -> DeviceTable:
        return self._table

    def save(self, table: DeviceTable) -> None:
        self._table = table


class _SavedTable(msgspec.Struct, array_like=True, frozen=True):
    """A table as encoded in the file."""

    dpu: str
    zone: str
    epoch: int
    version: int
    digest: bytes
    sets: list[tuple[Rule, bytes, bytes]]


class FileTableStore:
    """Storage in one file."""

    def __init__(self, path: Path, dpu: str, zone: str) -> None:
        self._path = path
        self._dpu = dpu
        self._zone = zone

    def check(self) -> None:
        """Raise OSError if the folder is not writable, before there is a table to save."""
        beside = self._beside()
        beside.touch()
        beside.unlink()

    def load(self) -> DeviceTable:
        try:
            data = self._path.read_bytes()
            if _hash(data[HASH_BYTES:]) != data[:HASH_BYTES]:
                logger.warning("saved table of dpu %s ignored, %s does not match its hash", self._dpu, self._path)
                return EMPTY_TABLE
            saved = msgspec.msgpack.decode(data[HASH_BYTES:], type=_SavedTable)
            rules = {rule: unpack(packed4, packed6) for rule, packed4, packed6 in saved.sets}
        except FileNotFoundError:
            return EMPTY_TABLE
        except (OSError, msgspec.DecodeError, ValueError) as error:  # ValueError: invalid text or prefixes
            logger.warning("saved table of dpu %s ignored, %s cannot be read: %s", self._dpu, self._path, error)
            return EMPTY_TABLE
        whose, ours = (saved.dpu, saved.zone), (self._dpu, self._zone)
        if whose != ours:
            logger.warning(
                "saved table ignored, %s belongs to dpu %s of zone %s, not to dpu %s of zone %s",
                self._path,
                *whose,
                *ours,
            )
            return EMPTY_TABLE
        return DeviceTable(saved.epoch, saved.version, saved.digest, rules)

    def save(self, table: DeviceTable) -> None:
        sets = [(rule, *pack(prefixes)) for rule, prefixes in table.rules.items()]
        data = msgspec.msgpack.encode(
            _SavedTable(self._dpu, self._zone, table.epoch, table.version, table.digest, sets)
        )
        beside = self._beside()
        with beside.open("wb") as file:
            file.write(_hash(data) + data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _beside(self) -> Path:
        return self._path.with_suffix(".new")


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=HASH_BYTES).digest()

"""Storage of a DPU's last good table across restarts of its agent, so that forwarding resumes without the control
plane.

A file that is torn, has a wrong hash, or belongs to another DPU is ignored (`saved_file`), and the relay sends the
whole table. A file from the DPU's former zone is ignored too: its version may be higher than that of the present zone's
table.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

import msgspec

from drivers.agents.saved_file import HashMismatch, check_writable, load_bytes, save_bytes
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, pack, unpack
from projections.rules.rule import Rule

logger = logging.getLogger(__name__)


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
        check_writable(self._path)

    def load(self) -> DeviceTable:
        try:
            saved = msgspec.msgpack.decode(load_bytes(self._path), type=_SavedTable)
            rules = {rule: unpack(packed4, packed6) for rule, packed4, packed6 in saved.sets}
        except FileNotFoundError:
            return EMPTY_TABLE
        except HashMismatch as error:
            logger.warning("saved table of dpu %s ignored, %s", self._dpu, error)
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
        save_bytes(
            self._path,
            msgspec.msgpack.encode(_SavedTable(self._dpu, self._zone, table.epoch, table.version, table.digest, sets)),
        )

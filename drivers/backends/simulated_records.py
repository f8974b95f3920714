"""The records of simulated devices: one flat array per field, a few dozen bytes per device, extended for each new zone.

A task per device would cost more than the rest of the process. With arrays, a change of 200,000 devices is a few array
operations per zone.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from drivers.backends.simulated_tables import NOTHING
from drivers.wire.protocol import all_dpus, bitmap_of

DeviceIndexes: TypeAlias = npt.NDArray[np.intp]
"""Devices, by their indexes in the records."""

NONE = -1
NEVER = np.inf


class DeviceRecords:
    """Devices in order of their zones. Tables are numbers of `SharedTables`."""

    def __init__(self) -> None:
        self.count = 0
        self.zone = np.zeros(0, np.int32)
        self.claimed = np.zeros(0, np.int32)
        """The table that the device's agent reports."""
        self.actual = np.zeros(0, np.int32)
        """The table that the device's hardware holds."""
        self.older = np.zeros(0, np.int32)
        """The table that the hardware held before; a reboot may bring the device back with it."""
        self.pending = np.zeros(0, np.int32)
        """The table that the device is applying, or NONE."""
        self.pending_at = np.zeros(0)
        self.hardware_at = np.zeros(0)
        self.up_at = np.zeros(0)
        """End of the device's reboot, on the loop's clock; NEVER while it is up."""
        self.received = np.zeros(0, np.uint64)
        self.in_hardware = np.zeros(0, np.uint64)
        self.boots = np.zeros(0, np.uint32)
        self.capacity = np.zeros(0, np.int32)
        self.factor = np.zeros(0, np.float32)
        """Factor on the time that the device takes to apply a frame."""
        self.in_sync = np.zeros(0, np.bool_)
        """Whether the agent believes that the hardware holds its table, and applies the next frame as a delta."""

    def add(self, zone: int, capacities: npt.NDArray[np.int32], factors: npt.NDArray[np.float32]) -> range:
        """Allocate records for the devices of a new zone; returns their indexes."""
        count = len(capacities)
        fresh: dict[str, Any] = {"zone": zone, "capacity": capacities, "factor": factors, "pending": NONE}
        fresh |= {"pending_at": NEVER, "hardware_at": NEVER, "up_at": NEVER, "in_sync": False}
        for name, field in vars(self).items():
            if isinstance(field, np.ndarray):
                new = np.full(count, fresh.get(name, NOTHING), field.dtype)
                setattr(self, name, np.concatenate((field, new)))
        start, self.count = self.count, self.count + count
        return range(start, self.count)

    @property
    def nbytes(self) -> int:
        """The memory of all records, in bytes."""
        return sum(field.nbytes for field in vars(self).values() if isinstance(field, np.ndarray))


def devices_of(places: range, dpus: int) -> DeviceIndexes:
    """The devices of a zone in a bitmap of their numbers on the link; 0 means all of the zone."""
    if not dpus:
        return np.arange(places.start, places.stop)
    bits = np.unpackbits(np.frombuffer(bitmap_of(dpus), np.uint8), bitorder="little")[: len(places)]
    return np.flatnonzero(bits) + places.start


def mask(places: range, devices: DeviceIndexes) -> int:
    """Devices of one zone as a bitmap of their numbers on the link, the inverse of `devices_of`."""
    if len(devices) == len(places):
        return all_dpus(len(places))
    bits = np.zeros(len(places), np.bool_)
    bits[devices - places.start] = True
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def groups(devices: DeviceIndexes, *fields: npt.NDArray[Any]) -> list[DeviceIndexes]:
    """Group these devices by their values of all these fields, in an order that depends on the values only."""
    if not len(devices):
        return []
    found = [field[devices] for field in fields]
    if all((values == values[0]).all() for values in found):
        return [devices]
    codes = np.zeros(len(devices), np.int64)
    for values in found:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = codes * len(distinct) + inverse
    _, inverse = np.unique(codes, return_inverse=True)
    return [devices[inverse == group] for group in range(int(inverse.max()) + 1)]

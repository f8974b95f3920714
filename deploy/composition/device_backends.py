"""Backends of agents by name: a new backend is a module of drivers/backends, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from drivers.backends.device import Device
from drivers.backends.simulated import SimulatedDevice


def _simulated(rng: Random) -> Device:
    return SimulatedDevice(rng=rng)


DEVICE_BACKENDS: Mapping[str, Callable[[Random], Device]] = {
    "simulated": _simulated,
}

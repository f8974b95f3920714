"""The management network of simulated hosts: which addresses have the BMC of a DPU.

Hosts are in racks. A rack has an IPv4 network of 256 addresses in 198.18.0.0/15, which RFC 2544 reserves for such uses,
and the first BMC of host N answers at .N, the second one at .(100 + N). The same hosts answer in 2001:db8::/32.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Callable
from typing import NamedTuple

from drivers.discovery.prober import ignore
from projections.field_checks import quoted
from projections.resources.discovery import Probed

FIRST = int(ipaddress.IPv4Address("198.18.0.0"))
FIRST6 = int(ipaddress.IPv6Address("2001:db8::"))
_SECOND = 100
_SERIAL = "SIM{rack:02}{host:03}{letter}"
LATENCY_S = 0.005


class NetworkSizes(NamedTuple):
    """The size of the network. The last `racks_without` racks have hosts without DPUs; of the others, every
    `second_every`-th host has two."""

    racks: int = 4
    hosts_per_rack: int = 25
    racks_without: int = 1
    second_every: int = 5


SIZES = NetworkSizes()
SIZES_FORM = "RACKSxHOSTS"
_MOST = 99


def parse_sizes(field: str, text: str) -> NetworkSizes:
    """Parse RACKSxHOSTS, such as 4x25; an empty text means the default. Raises ValueError with a sentence."""
    if not text:
        return SIZES
    racks, separator, hosts = text.partition("x")
    numbers = [int(each) for each in (racks, hosts) if each.isascii() and each.isdigit() and len(each) <= 3]
    if not separator or len(numbers) != 2 or not all(1 <= each <= _MOST for each in numbers):
        raise ValueError(f"{field}: {quoted(text)} must have the form {SIZES_FORM} with numbers from 1 to {_MOST}")
    return NetworkSizes(numbers[0], numbers[1], racks_without=int(numbers[0] > 1))


class SimulatedDpu(NamedTuple):
    """A DPU in a host of a rack; both count from 1. `number` is 0 or 1."""

    rack: int
    host: int
    number: int

    @property
    def serial(self) -> str:
        return _SERIAL.format(rack=self.rack, host=self.host, letter="AB"[self.number])

    @property
    def bmc_address(self) -> str:
        return f"simulated:{self.serial.lower()}"

    @property
    def address(self) -> str:
        """The IPv4 address of its BMC."""
        return str(ipaddress.IPv4Address(FIRST + (self.rack << 8) + self.host + _SECOND * self.number))


class BmcNetwork:
    """Answers probes after a short time, as the BMCs of the simulated hosts would."""

    def __init__(self, rng: random.Random, sizes: NetworkSizes = SIZES) -> None:
        self.probes = 0
        self._rng = rng
        self._sizes = sizes

    async def probe(self, address: str, port: int, answers: Callable[[], None] = ignore) -> Probed | None:
        self.probes += 1
        await asyncio.sleep(self._rng.expovariate(1 / LATENCY_S))
        dpu = self.at(address)
        return None if dpu is None else Probed(dpu.serial, dpu.bmc_address)

    def at(self, address: str) -> SimulatedDpu | None:
        """The DPU whose BMC has an address."""
        found = ipaddress.ip_address(address)
        offset = int(found) - (FIRST if found.version == 4 else FIRST6)
        rack, place = divmod(offset, 256)
        number, host = divmod(place, _SECOND)
        return SimulatedDpu(rack, host, number) if self._has(rack, host, number) else None

    def dpus(self) -> list[SimulatedDpu]:
        """All DPUs, rack by rack and host by host."""
        sizes = self._sizes
        return [
            SimulatedDpu(rack, host, number)
            for rack in range(1, sizes.racks + 1)
            for host in range(1, sizes.hosts_per_rack + 1)
            for number in (0, 1)
            if self._has(rack, host, number)
        ]

    def _has(self, rack: int, host: int, number: int) -> bool:
        sizes = self._sizes
        if not (1 <= rack <= sizes.racks - sizes.racks_without and 1 <= host <= sizes.hosts_per_rack):
            return False
        return number == 0 or (number == 1 and host % sizes.second_every == 0)

"""The contract of a forwarding device. It runs unchanged against every implementation."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping

from drivers.backends.device import Device
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, Prefixes, digest_of, steps_between
from projections.rules.rule import Rule

Scenario = Callable[[Device], Awaitable[None]]
CHANGES = 60


def table(version: int, rules: Mapping[Rule, Prefixes]) -> DeviceTable:
    """A table of this content."""
    return DeviceTable(1, version, digest_of(rules), rules)


def some_rules(rng: random.Random) -> dict[Rule, Prefixes]:
    """Rules of every form, with a few prefixes of both families."""
    ports = ((), (22, 22), (80, 90, 443, 443), (1, 65_535), (0, 1_023))
    rules = {
        Rule(
            rng.randrange(-3, 4) * 10,
            rng.choice(("allow", "drop")),
            protocol := rng.choice(("any", "tcp", "udp", "icmp")),
            rng.choice(ports) if protocol in ("tcp", "udp") else (),
        ): frozenset(some_prefix(rng) for _ in range(rng.randrange(1, 6)))
        for _ in range(rng.randrange(6))
    }
    return dict(rules)


def some_prefix(rng: random.Random) -> bytes:
    """A packed prefix out of few, so that prefixes of different rules overlap."""
    width, fixed = (4, b"\x0a\x00") if rng.random() < 0.7 else (16, b"\x20\x01")
    length = rng.choice((0, 8, 15, 16, 20, 24, 31, 32) if width == 4 else (0, 16, 48, 64, 127, 128))
    address = int.from_bytes(fixed + bytes(rng.randrange(3) for _ in range(width - 2)), "big")
    kept = address >> (width * 8 - length) << (width * 8 - length)
    return kept.to_bytes(width, "big") + bytes((length,))


async def changed(device: Device, old: DeviceTable, new: DeviceTable) -> None:
    """Apply the steps between two tables."""
    found = device.apply(steps_between(old, new), new)
    assert found if isinstance(found, bool) else await found


async def restored(device: Device, new: DeviceTable) -> None:
    found = device.restore(new)
    assert found if isinstance(found, bool) else await found


class DeviceContract(ABC):
    """Each scenario gets a device that has no table."""

    @abstractmethod
    def with_device(self, scenario: Scenario) -> None:
        """Run a scenario with a device."""

    @abstractmethod
    def forget(self, device: Device) -> None:
        """Have the next read-back read the device, not what is known of it."""

    def test_a_device_reads_back_the_digest_of_every_table(self) -> None:
        async def scenario(device: Device) -> None:
            rng, old = random.Random(1), EMPTY_TABLE
            for version in range(1, CHANGES):
                new = table(version, some_rules(rng))
                await changed(device, old, new)
                self.forget(device)
                assert await device.read_back() == new.digest, new.rules
                old = new

        self.with_device(scenario)

    def test_repeated_steps_change_nothing(self) -> None:
        async def scenario(device: Device) -> None:
            rng, old = random.Random(2), EMPTY_TABLE
            for version in range(1, 20):
                new = table(version, some_rules(rng))
                await changed(device, old, new)
                await changed(device, old, new)
                self.forget(device)
                assert await device.read_back() == new.digest
                old = new

        self.with_device(scenario)

    def test_a_table_is_restored_from_any_other(self) -> None:
        async def scenario(device: Device) -> None:
            rng = random.Random(3)
            for version in range(1, CHANGES):
                new = table(version, some_rules(rng))
                await restored(device, new)
                self.forget(device)
                assert await device.read_back() == new.digest
            assert device.capacity > new.size

        self.with_device(scenario)

"""Rules in a real Open vSwitch: one bundle against `ovs-ofctl --bundle add-flows` of the same flows, one more prefix,
read-back, many bridges at once, and the memory of the device of an agent.

The datapath is emulated, so that the figures are those of the OpenFlow tables.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.host.openvswitch import Switch
from drivers.backends.openvswitch import OpenVSwitch
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, steps_between
from projections.rules.rule import Rule
from tests.bench.figures import Figure
from tests.bench.memory import cpu_seconds
from tests.contract.device import changed, table
from tests.support.openvswitch import bridge_device, switch_folder

RULE = Rule(10, "allow", "any", ())
BRIDGES, RULES = 200, 1_000
ROUNDS = 3
PEERS_TIMES = 1.1
"""How many times as long as ovs-ofctl an installation may take."""


def figures() -> list[Figure]:
    with switch_folder() as switch:
        return asyncio.run(_figures(switch))


async def _figures(switch: Switch) -> list[Figure]:
    one_more = await _one_more(switch, 100_000)  # first: it measures how far the peak of this process rises
    found = []
    for count in (10_000, 100_000):
        ours = min([await _install_s(switch, f"ours{count}-{n}", count) for n in range(ROUNDS)])
        peers = min(_ofctl_s(switch, f"ours{count}-0", f"peer{count}-{n}") for n in range(ROUNDS))
        aim = PEERS_TIMES * peers
        name = f"{count:,} rules into one switch"
        found.append(Figure(name, ours, "s", peers, "ovs-ofctl --bundle", aim=aim, better="lower"))
        for n in range(ROUNDS):
            switch.vsctl("del-br", f"ours{count}-{n}", "--", "del-br", f"peer{count}-{n}")
    return [*found, *one_more, *await _many(switch)]


def content(count: int) -> DeviceTable:
    """A table that allows this number of addresses, of which no two join to a prefix."""
    addresses = ((0x0B00_0000 + 2 * number).to_bytes(4, "big") + b"\x20" for number in range(count))
    return table(1, {RULE: frozenset(addresses)})


async def _install_s(switch: Switch, bridge: str, count: int) -> float:
    switch.add_bridge(bridge)
    new = content(count)
    steps = steps_between(EMPTY_TABLE, new)
    async with bridge_device(switch, bridge) as device:
        await changed(device, EMPTY_TABLE, table(0, {}))  # reads what the bridge has
        return await _elapsed(device.apply(steps, new))


def _ofctl_s(switch: Switch, source: str, bridge: str) -> float:
    """Seconds that ovs-ofctl takes for the flows of another bridge."""
    switch.add_bridge(bridge)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "flows"
        file.write_text("\n".join(switch.flows(source)))
        began = time.perf_counter()
        switch.ofctl("add-flows", bridge, str(file), "--bundle")
        return time.perf_counter() - began


async def _one_more(switch: Switch, count: int) -> list[Figure]:
    switch.add_bridge("large")
    before = content(count)
    gc.collect()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with bridge_device(switch, "large") as device:
        await changed(device, EMPTY_TABLE, before)
        elapsed = []
        for number in range(20):
            one = (0x6300_0000 + number).to_bytes(4, "big") + b"\x20"
            after = table(1, {RULE: before.rules[RULE] | {one}})
            steps = steps_between(before, after)
            elapsed.append(await _elapsed(device.apply(steps, after)))
            before = after
        device.forget()
        began = time.perf_counter()
        assert await device.read_back() == before.digest
        read_s = time.perf_counter() - began
    switch.vsctl("del-br", "large")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1e3
    return [
        Figure(f"one more prefix beside {count:,}", sorted(elapsed)[10] * 1e3, "ms", aim=5.0, better="lower"),
        Figure(f"read {count:,} flows back, with their digest", read_s, "s", better="lower"),
        Figure(f"memory that a device of {count:,} prefixes adds at its peak", grown, "MB"),
    ]


async def _many(switch: Switch) -> list[Figure]:
    """Every one of many bridges gets its rules, all at once. The switch takes OpenFlow messages on one thread, so the
    time is bounded by its own CPU time, which is the peer of that of the devices."""
    for number in range(BRIDGES):
        switch.add_bridge(f"m{number}", ports=1)
    new = content(RULES)
    async with AsyncExitStack() as stack:
        devices = [await stack.enter_async_context(bridge_device(switch, f"m{n}")) for n in range(BRIDGES)]
        pid = int((switch.folder / "ovs-vswitchd.pid").read_text())
        switch_s, own_s, began = cpu_seconds(pid), time.process_time(), time.perf_counter()
        await asyncio.gather(*(_restore(device, new) for device in devices))
        took_s, own_s, switch_s = time.perf_counter() - began, time.process_time() - own_s, cpu_seconds(pid) - switch_s
    name = f"{RULES:,} rules to each of {BRIDGES} bridges at once"
    return [
        Figure(name, took_s, "s", aim=2.0, better="lower"),
        Figure(f"{name}: CPU of the devices", own_s, "s", switch_s, "ovs-vswitchd meanwhile", better="lower"),
    ]


async def _restore(device: OpenVSwitch, new: DeviceTable) -> None:
    found = device.restore(new)
    assert found if isinstance(found, bool) else await found


async def _elapsed(call: bool | Awaitable[bool]) -> float:
    began = time.perf_counter()
    assert call if isinstance(call, bool) else await call
    return time.perf_counter() - began

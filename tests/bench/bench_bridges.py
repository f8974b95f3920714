"""From a join to 200 bridges of one real Open vSwitch, through a relay and an agent each; and the memory of one agent
process whose bridge has 100,000 prefixes.

The agents share one process, the switch has another, and the datapath is emulated. The agents' collector of garbage is
off, as in the bench of agents.

Of the memory of the agent process, 58 MB are Python and libraries: 12 MB numpy, which hashes and checks whole tables at
once, and 10 MB the client of aiohttp; 22 MB are pages of libraries that all agents of a device share. The prefixes take
10 MB as a set, and the comparison with the bridge 4 MB more.
"""

from __future__ import annotations

import asyncio
import gc
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from deploy.host.openvswitch import Switch
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.openvswitch import OpenVSwitch
from drivers.relays.latency import LatencyHistogram
from drivers.simulators.simulator import NAMING
from drivers.wire.websocket import Dialer
from tests.bench.apart import apart, beside, serving
from tests.bench.figures import Figure
from tests.bench.memory import peak_bytes
from tests.bench.planes import PATIENCE_S, all_up_to_date, fill, serving_plane, until
from tests.bench.relayed import connected, relayed, timed_joins
from tests.bench.workload import zone_name
from tests.support.openvswitch import LAYOUT, switch_folder

BRIDGES, NODES, JOINS = 200, 1_000, 50
PREFIXES = 100_000
ZONE = zone_name(0)


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        apart(fill, folder / "many", 1, NODES, BRIDGES)
        apart(fill, folder / "large", 1, PREFIXES, 1, 2)
        with switch_folder() as switch:
            for number in range(BRIDGES):
                switch.add_bridge(f"m{number}", ports=1)
            joined = uvloop.run(_joined(folder / "many", switch))
            peak_mb = _agent_peak_bytes(folder, switch) / 1e6
    name = f"one join to {BRIDGES} bridges"
    return [
        Figure(f"{name}, p50", joined.quantile(0.5), "ms", better="lower"),
        Figure(f"{name}, p99", joined.quantile(0.99), "ms", better="lower"),
        Figure(
            f"agent process with {PREFIXES:,} prefixes in its bridge, peak", peak_mb, "MB", aim=60.0, better="lower"
        ),
    ]


async def _joined(data: Path, switch: Switch) -> LatencyHistogram:
    async with serving_plane(data) as plane, relayed(plane, None) as (relay, port):
        with beside(_run_agents, port, switch.folder):
            await until(lambda: connected(relay) == BRIDGES)
            await all_up_to_date(plane, 1, NODES, BRIDGES)
            return await timed_joins(plane, relay, JOINS, 1, BRIDGES, first=NODES)


def _run_agents(port: int, sockets: Path) -> None:
    gc.disable()
    uvloop.run(_agents(f"127.0.0.1:{port}", sockets))


async def _agents(relay: str, sockets: Path) -> None:
    rng = random.Random(6)
    async with Dialer() as dialer, asyncio.TaskGroup() as tasks:
        for number in range(BRIDGES):
            identity = AgentIdentity(ZONE, NAMING.dpu.format(zone=ZONE, number=number), "boot-1")
            device = OpenVSwitch(sockets / f"m{number}.mgmt", LAYOUT, rng=rng)
            agent = Agent(identity, (relay,), dial=dialer.dial, device=device, store=MemoryTableStore(), rng=rng)
            tasks.create_task(device.run())
            tasks.create_task(agent.run())


def _agent_peak_bytes(folder: Path, switch: Switch) -> int:
    switch.add_bridge("large")
    dpu = NAMING.dpu.format(zone=ZONE, number=0)
    with serving("--data", str(folder / "large")) as addresses:
        command = [str(Path(sys.executable).with_name("dpuplane")), "agent", "--relay", addresses["agents"]]
        command += ["--zone", ZONE, "--dpu", dpu, "--state", str(folder / "state"), "--backend", "openvswitch"]
        command += ["--bridge", "large", "--openvswitch-run", str(switch.folder)]
        agent = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _until_flows(switch, "large", PREFIXES)
            return peak_bytes(agent.pid)
        finally:
            agent.terminate()
            agent.wait(10.0)


def _until_flows(switch: Switch, bridge: str, count: int) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while True:
        shown = re.search(r"flow_count=(\d+)", switch.ofctl("dump-aggregate", bridge))
        if shown is not None and int(shown[1]) >= count:
            return
        assert time.monotonic() < ends_at, f"{bridge} has not {count} flows"
        time.sleep(0.2)

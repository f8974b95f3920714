"""The verdict after a fault: the plane comes to rest, the log is read twice, every checker and `verify` run."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import grpc

from eventstore.log import FLEET_0, Partition
from schemas.api import dpuplane_pb2 as pb
from tests.faults.checking import Case, check
from tests.faults.roles import Role
from tests.faults.workload import ZONE_NAMES, Call
from tests.faults.world import World
from tests.simulation.checkers import Fault
from tests.simulation.history import FinalPosition, FinalTable, History, HistoryEntry
from tests.support.planes import Ran, run

REST_S = 180.0
STATUS_S = 30.0
"""Time limit for a plane at rest to report its positions and tables."""
PAUSE_S = 1.0
HARMLESS = "MessageAccumulator._pop_batch"
"""A harmless error in the log of aiokafka: it drops a batch twice if the batch expires while it waits for a retry."""
FATAL_STATUS = 3
"""The exit status of a process that logged a fatal error. A supervisor restarts it, so it is no fault."""


class Verdict(NamedTuple):
    """The faults found, one sentence each, and the time until the checkers found none."""

    faults: list[str]
    lost: int
    doubled: int
    rest_s: float


async def judge(world: World) -> Verdict:
    """Check a healed world without active clients until no fault is found, or until REST_S has passed."""
    began_s = time.monotonic()
    await _thaw(world)
    while True:
        asked_s = time.monotonic()  # the state at this moment is judged, however long the check takes
        faults, others = await faults_of(world)
        if not (faults or others) or asked_s - began_s > REST_S:
            rest_s = time.monotonic() - began_s
            lost = sum(fault.invariant == "I1" for fault in faults)
            doubled = sum(fault.invariant == "I2" for fault in faults)
            bugs = [bug for role in (*world.roles, world.simulator) for bug in bugs_of(role)]
            return Verdict([*map(str, faults), *others, *bugs], lost, doubled, rest_s)
        await asyncio.sleep(PAUSE_S)


async def faults_of(world: World) -> tuple[list[Fault], list[str]]:
    """The faults that the checkers find, and other problems as text. `verify` runs only if there are none."""
    history: History = world.history.copy()
    try:
        async with asyncio.timeout(STATUS_S):
            async for entry in _at_rest(world):
                history.add(entry)
    except (grpc.aio.AioRpcError, TimeoutError) as error:
        return [], [f"the plane does not report its state: {_error_text(error)}"]
    case = Case(history, world.log_source, world.states)
    faults, others = await asyncio.get_running_loop().run_in_executor(world.checking, check, case)
    if (connected := len(history.of(FinalTable))) != world.devices:
        others.append(f"{connected} of {world.devices} devices have a link")
    return faults, others or ([] if faults else await _differences(world))


async def _thaw(world: World) -> None:
    """Thaw all zones, because a frozen zone keeps an old table."""
    for zone in ZONE_NAMES:
        await world.clients[0].send(Call("ThawWrites", pb.ThawWritesRequest(zone=zone), FLEET_0))


async def _differences(world: World) -> list[str]:
    """The differences that `verify` finds. There are none if every replica and every device agrees with the log."""
    try:
        ran: Ran = await run("verify", "--output", "json", *world.viewer.flags, server=",".join(world.servers))
    except TimeoutError:
        return ["verify did not end in time"]
    if ran.status == 0 and ran.json()["devices_equal"] == world.devices:
        return []
    return [f"verify exited with status {ran.status}: {ran.stderr.strip() or ran.stdout.strip()}"]


def _error_text(error: grpc.aio.AioRpcError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {STATUS_S:.0f} s"
    return f"{error.code().name}, {error.details()}"


def bugs_of(role: Role) -> Iterator[str]:
    """Faults since the last call that no injected fault explains: a crash of a role, or an error in its log."""
    for status in role.take_exits():
        if status < 0:
            yield f"{role.name} was killed by {signal.Signals(-status).name}, which no fault sent"
        elif status != FATAL_STATUS:
            yield f"{role.name} exited with status {status}"
    lines = role.take_log().splitlines()
    for number, line in enumerate(lines):
        if ("stopped by an unhandled exception" in line or "Traceback" in line) and HARMLESS not in line:
            ending = next((after for after in lines[number + 1 :] if not after.startswith(" ")), "")
            yield f"{role.name} logged: {line} ... {ending}"


async def _at_rest(world: World) -> AsyncIterator[HistoryEntry]:
    """The positions of replicas and the tables of devices, as they report them."""
    status = await world.queries.GetStatus(pb.GetStatusRequest())
    for replica in status.replicas:
        for part in replica.partitions:
            topic, _, number = part.partition.partition("/")
            running = bytes.fromhex(part.running_hash)
            yield FinalPosition(replica.name, Partition(topic, int(number)), part.position, running, part.halted)
    async for page in world.queries.ListDevices(pb.ListDevicesRequest()):
        for device in page.devices:
            yield FinalTable(device.zone, device.dpu, device.version, bytes.fromhex(device.digest))

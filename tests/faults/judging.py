"""The verdict after a fault: the plane is at rest and agrees, the log is read twice, and every checker runs."""

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
from tests.faults.workload import ZONE_NAMES, Asked
from tests.faults.world import World
from tests.simulation.checkers import Fault
from tests.simulation.history import FinalPosition, FinalTable, History, HistoryEntry
from tests.support.planes import Ran, run

REST_S = 180.0
ASK_S = 30.0
"""Within this a plane at rest says how it stands."""
PAUSE_S = 1.0
EXCUSED = "MessageAccumulator._pop_batch"
"""aiokafka forgets a batch twice that ran out of time while it waited to be sent again; nothing comes of it."""
CANNOT_GO_ON = 3
"""What a process may end with by itself: it has said why, and a supervisor starts it again."""


class Verdict(NamedTuple):
    """The faults found, a sentence each, and the time until none was left."""

    faults: list[str]
    lost: int
    doubled: int
    rest_s: float


async def judge(world: World) -> Verdict:
    """Check a healed world without active clients until no fault is found, or until the time to recover is over."""
    began_s = time.monotonic()
    await _thaw(world)
    while True:
        asked_s = time.monotonic()  # the state at this moment is judged, however long the check takes
        found, more = await faults_of(world)
        if not (found or more) or asked_s - began_s > REST_S:
            took_s = time.monotonic() - began_s
            lost = sum(fault.invariant == "I1" for fault in found)
            doubled = sum(fault.invariant == "I2" for fault in found)
            bugs = [bug for role in (*world.roles, world.simulator) for bug in bugs_of(role)]
            return Verdict([*map(str, found), *more, *bugs], lost, doubled, took_s)
        await asyncio.sleep(PAUSE_S)


async def faults_of(world: World) -> tuple[list[Fault], list[str]]:
    """The faults found by the checkers and by other means; `verify` comes last."""
    history: History = world.history.copy()
    try:
        async with asyncio.timeout(ASK_S):
            async for happening in _at_rest(world):
                history.add(happening)
    except (grpc.aio.AioRpcError, TimeoutError) as error:
        return [], [f"the plane does not say how it stands: {_said(error)}"]
    case = Case(history, world.log_source, world.states)
    found, others = await asyncio.get_running_loop().run_in_executor(world.checking, check, case)
    if (connected := len(history.of(FinalTable))) != world.devices:
        others.append(f"{connected} of {world.devices} devices have a link")
    return found, others or ([] if found else await _differences(world))


async def _thaw(world: World) -> None:
    """Thaw all zones: a frozen zone rightly has an old table."""
    for zone in ZONE_NAMES:
        await world.clients[0].ask(Asked("ThawWrites", pb.ThawWritesRequest(zone=zone), FLEET_0))


async def _differences(world: World) -> list[str]:
    """The differences that `verify` finds: none if every replica and every device agrees with the log."""
    try:
        ran: Ran = await run("verify", "--output", "json", *world.viewer.flags, server=",".join(world.servers))
    except TimeoutError:
        return ["verify comes to no end"]
    if ran.status == 0 and ran.json()["devices_equal"] == world.devices:
        return []
    return [f"verify ends with {ran.status}: {ran.stderr.strip() or ran.stdout.strip()}"]


def _said(error: grpc.aio.AioRpcError | TimeoutError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {ASK_S:.0f} s"
    return f"{error.code().name}, {error.details()}"


def bugs_of(role: Role) -> Iterator[str]:
    """Faults that no injection excuses since the last call: a crash of a role, or an error in its log."""
    for status in role.untold_deaths():
        if status < 0:
            yield f"{role.name} died of {signal.Signals(-status).name}, which nobody sent"
        elif status != CANNOT_GO_ON:
            yield f"{role.name} ended by itself with status {status}"
    lines = role.unread_log().splitlines()
    for number, line in enumerate(lines):
        if ("stopped by an unhandled exception" in line or "Traceback" in line) and EXCUSED not in line:
            ending = next((after for after in lines[number + 1 :] if not after.startswith(" ")), "")
            yield f"{role.name} said: {line} ... {ending}"


async def _at_rest(world: World) -> AsyncIterator[HistoryEntry]:
    """The positions of replicas and devices, from their own reports."""
    status = await world.queries.GetStatus(pb.GetStatusRequest())
    for replica in status.replicas:
        for part in replica.partitions:
            topic, _, number = part.partition.partition("/")
            running = bytes.fromhex(part.running_hash)
            yield FinalPosition(replica.name, Partition(topic, int(number)), part.position, running, part.halted)
    async for page in world.queries.ListDevices(pb.ListDevicesRequest()):
        for device in page.devices:
            yield FinalTable(device.zone, device.dpu, device.version, bytes.fromhex(device.digest))

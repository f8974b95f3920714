"""The verdict after a fault: everything rests and agrees, the log is read twice, and the checkers look at all of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from deploy.opening import open_to_read
from eventstore.log import FLEET_0, FOLDED_TOPICS, Partition, Record
from eventstore.rocks_store import checkpoints, open_checkpoint
from eventstore.snapshots import Saved
from schemas.api import dpuplane_pb2 as pb
from tests.contract.engine import read_to_end
from tests.faults.workload import ZONE_NAMES, Asked
from tests.faults.world import World
from tests.simulation.checkers import Fault, judge_history
from tests.simulation.fresh import event_of
from tests.simulation.history import Dumped, Happening, History, Stood
from tests.support.planes import Ran, run

REST_S = 180.0
PAUSE_S = 1.0
Records = Mapping[Partition, Sequence[Record]]


class Verdict(NamedTuple):
    """What was wrong, a sentence each, and how soon nothing was."""

    faults: list[str]
    lost: int
    doubled: int
    rest_s: float


async def judge(world: World) -> Verdict:
    """Look at a world that has healed, and whose clients are silent, until nothing is wrong or it will not be right."""
    began_s = time.monotonic()
    await _thaw(world)
    while True:
        found, more = await _faults(world)
        took_s = time.monotonic() - began_s
        if not (found or more) or took_s > REST_S:
            lost = sum(fault.invariant == "I1" for fault in found)
            doubled = sum(fault.invariant == "I2" for fault in found)
            return Verdict([*map(str, found), *more, *_bugs(world)], lost, doubled, took_s)
        await asyncio.sleep(PAUSE_S)


async def _faults(world: World) -> tuple[list[Fault], list[str]]:
    """What the checkers find, and what else there is; `verify` has the last word."""
    history: History = world.history.copy()
    others: list[str] = []
    async for happening in _at_rest(world):
        history.add(happening)
    if (connected := len(history.of(Dumped))) != world.devices:
        others.append(f"{connected} of {world.devices} devices have a link")
    records, again = await read_everything(world), await read_everything(world)
    others += _unread(world, records)
    found = await asyncio.to_thread(_checked, world, history, records, again)  # proxies are at work meanwhile
    return found, others or ([] if found else await _differences(world))


def _checked(world: World, history: History, records: Records, again: Records) -> list[Fault]:
    with ExitStack() as stack:
        return judge_history(
            history,
            records,
            again=again,
            appended_s=_appended_s(records) if world.engine == "kafka" else None,
            saved=_saved(world, stack),
            end_s=time.monotonic(),
        )


async def read_everything(world: World) -> dict[Partition, list[Record]]:
    """Every record of every topic that is folded, by a reader of its own."""
    async with open_to_read(world.place, rng=random.Random()) as log:
        return await read_to_end(log, {partition: 0 for topic in FOLDED_TOPICS for partition in log.partitions(topic)})


async def _thaw(world: World) -> None:
    """A frozen zone rightly has an old table."""
    for zone in ZONE_NAMES:
        await world.clients[0].ask(Asked("Thaw", pb.ThawRequest(zone=zone), FLEET_0))


async def _differences(world: World) -> list[str]:
    """What `verify` says: nothing, if every replica and every device is as the log says."""
    ran: Ran = await run("verify", "--output", "json", *world.viewer.flags, server=",".join(world.servers))
    if ran.status == 0 and ran.json()["devices_equal"] == world.devices:
        return []
    return [f"verify ends with {ran.status}: {ran.stderr.strip() or ran.stdout.strip()}"]


def _bugs(world: World) -> Iterator[str]:
    """What no fault excuses, in the words of the roles' own logs, since they were looked at last."""
    for role in (*world.roles, world.simulator):
        lines = role.unread_log().splitlines()
        for number, line in enumerate(lines):
            if "stopped by a bug" in line or "Traceback" in line:
                ending = next((after for after in lines[number + 1 :] if not after.startswith(" ")), "")
                yield f"{role.name} said: {line} ... {ending}"


async def _at_rest(world: World) -> AsyncIterator[Happening]:
    """How replicas and devices stand, as they say themselves."""
    status = await world.queries.ShowStatus(pb.ShowStatusRequest())
    for replica in status.replicas:
        for part in replica.partitions:
            topic, _, number = part.partition.partition("/")
            running = bytes.fromhex(part.running_hash)
            yield Stood(replica.name, Partition(topic, int(number)), part.position, running, part.halted)
    async for page in world.queries.ListDevices(pb.ListDevicesRequest()):
        for device in page.devices:
            yield Dumped(device.zone, device.dpu, device.version, bytes.fromhex(device.digest))


def _appended_s(records: Records) -> Callable[[Partition, int], float]:
    """When a record was appended, by our monotonic clock."""
    ahead_s = time.time() - time.monotonic()
    at = {(p, record.offset): record.timestamp_ms / 1000 - ahead_s for p, found in records.items() for record in found}
    return lambda partition, offset: at[partition, offset]


def _saved(world: World, stack: ExitStack) -> dict[str, Saved]:
    """The newest state of each role that can be read beside its owner."""
    found: dict[str, Saved] = {}
    for name, disk in world.disks.items():
        folder = disk.folder / ("data/state" if world.engine == "embedded" else "state")
        for newest in checkpoints(folder)[-1:]:
            saved = open_checkpoint(newest.path)
            stack.callback(saved.close)
            found[name] = saved
    return found


def _unread(world: World, records: Records) -> Iterator[str]:
    """Commands of which a client was told that they are in no log, and which are in it."""
    refused = {command_id for client in world.clients for command_id in client.refused_unread}
    for partition, found in records.items():
        for record in found:
            event = event_of(record)
            if event is not None and event.envelope.command_id in refused:
                yield f"{event.envelope.command_id} was refused without a record, and is {partition}@{record.offset}"

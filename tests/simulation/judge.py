"""The verdict on a simulated run: read its log twice, and run every checker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deploy.composition.topics import TOPICS
from drivers.provisioning.device import TOKENS_PER_MS
from eventstore.log import DECISIONS, REPLICAS, Partition, Record
from tests.contract.engine import read_to_end
from tests.simulation.agents import rules_of
from tests.simulation.checkers import judge_history
from tests.simulation.history import BmcCalled, FinalPosition, FinalTable, HistoryEntry, HostRebooted
from tests.support.memory_disk import Disk, DiskStore
from tests.support.virtual_loop import current_loop

if TYPE_CHECKING:
    from tests.simulation.world import World

FAULTS_SHOWN = 20


async def read_everything(world: World) -> dict[Partition, list[Record]]:
    """Every record of the folded topics, of beacons and of decisions."""
    topics = (*TOPICS.folded, DECISIONS, REPLICAS)
    return await read_to_end(world.log, {partition: 0 for topic in topics for partition in world.log.partitions(topic)})


async def judge(world: World, *, at_rest: bool = True) -> list[str]:
    """The faults of a run after its fault phase, while its processes are still up. Without `at_rest`, only the checks
    run that hold at every moment.
    """
    history = world.history.copy()
    for entry in _at_rest(world):
        history.add(entry)
    saved = {process.name: _reader(process.disk) for process in world.processes}
    found = judge_history(
        history,
        await read_everything(world),
        again=await read_everything(world),
        appended_s=world.appended_s,
        saved=saved,
        end_s=current_loop().time(),
        at_rest=at_rest,
    )
    return [*world.faults(), *_divergences(world), *map(str, found)][:FAULTS_SHOWN]


def _reader(disk: Disk) -> DiskStore:
    """A read-only reader of a disk."""
    return DiskStore(disk)


def _divergences(world: World) -> Iterator[str]:
    for process in world.processes:
        if process.instance and process.instance.beacons.divergences:
            yield f"I10: {process.name} has seen {process.instance.beacons.divergences} divergences"


def _at_rest(world: World) -> Iterator[HistoryEntry]:
    """The entries that can be observed only at rest."""
    for name, bmc in world.bmcs.devices.items():
        for task in bmc.begun:
            began_ms, attempt = divmod(task.token, TOKENS_PER_MS)
            yield BmcCalled(name, attempt, task.action, began_ms)
    yield from world.redfish.at_rest()
    for (_, name), host in world.hosts.hosts.items():
        for reboot in host.reboots:
            yield HostRebooted(reboot.began_s, name, reboot.was_drained)
    for process in world.processes:
        if process.instance:
            yield process.uptime(process.instance)
        for status in process.instance.replica.partitions_status() if process.instance else ():
            running = bytes.fromhex(status.running)
            yield FinalPosition(process.name, status.partition, status.position, running, status.halted)
    if world.cluster is not None:
        yield from world.cluster.final_objects()
    yield from _devices(world)
    if world.servers is not None:
        yield from world.servers.final()
    if world.wanted_agents is not None:
        yield from world.wanted_agents.final_networks()


def _devices(world: World) -> Iterator[FinalTable]:
    records, held = world.fleet.records, world.fleet.tables
    for number, zone in enumerate(world.plan.zones):
        places = world.fleet.zones[number]
        for place, dpu in enumerate(world.simulator.zones[zone].dpus):
            table, claimed = (held[int(of[places.start + place])] for of in (records.actual, records.claimed))
            yield FinalTable(zone, dpu, claimed.version, table.digest, rules_of(table))
    wanted = world.wanted_agents.hosts.values() if world.wanted_agents is not None else ()
    for host in (*world.agents, *wanted):
        held = host.device.held(host.agent.table)
        yield FinalTable(host.zone, host.name, host.agent.table.version, held.digest, held.rules)

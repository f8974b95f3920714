"""Bugs in drivers: forwarders, relays, agents and devices, beacons and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

import drivers.relays.delivery_state
import drivers.relays.reports
import eventstore.replicas.beacons
import projections.rules.device_table
from drivers.agents.agent import Agent
from drivers.forwarder import Forwarder
from drivers.internal_events import InternalEvents
from drivers.relays.reports import ReportBuffer
from drivers.relays.served_zone import ServedZone
from eventstore.log import FLEET_0
from projections.rules.device_table import EMPTY_TABLE, DeviceTable
from projections.rules.rule import Rule
from tests.seeded.bugs import Bug, SimulatedScenario, SteppedScenario, patched, replaced_by, returns
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import WiredLog


def _skips_one_partition(forward: Any) -> Any:
    async def forwarded(self: Forwarder, partition: Any) -> None:
        if partition.number == 2:
            await asyncio.get_running_loop().create_future()
        await forward(self, partition)

    return forwarded


def _prunes_at_the_folded_position(prune_to: Any) -> Any:
    async def pruned(self: Forwarder, partition: Any, mark: int) -> None:
        await prune_to(self, partition, self._replica.position(partition))

    return pruned


def _appends_five_times(append: Any) -> Any:
    async def appended(self: InternalEvents, partition: Any, key: str, event: Any) -> bool:
        return any([await append(self, partition, key, event) for _ in range(5)])

    return appended


def _to_the_wrong_topic(say: Any) -> Any:
    async def appended(self: Forwarder, need: Any) -> bool:
        wrong = need._replace(target=FLEET_0) if str(need.target).startswith("zones") else need
        found: bool = await say(self, wrong)
        return found

    return appended


def _not_frozen(_: Any) -> Any:
    return property(lambda self: False)


def _accepts_older_snapshots(apply: Any) -> Any:
    def applied(table: DeviceTable, epoch: int, delta: Any, *, capacity: int) -> Any:
        older = table._replace(epoch=0, version=0) if not delta.from_version else table
        return apply(older, epoch, delta, capacity=capacity)

    return applied


def _drops_the_last_step(after: Any) -> Any:
    def held(table: DeviceTable, delta: Any, capacity: int) -> Mapping[Rule, frozenset[bytes]]:
        found: Mapping[Rule, frozenset[bytes]] = after(table, _without_the_last_step(delta), capacity)
        return found

    return held


def _without_the_last_step(delta: Any) -> Any:
    """All but the last of several steps."""
    return delta._replace(steps=delta.steps[:-1] or delta.steps)


def _digest_of_the_frame(digest_after: Any) -> Any:
    return lambda table, delta: delta.digest


def _future_version(event: Any) -> Any:
    def reported(self: ReportBuffer, *about: Any) -> Any:
        found = event(self, *about)
        return replace(found, versions=[version + 50 for version in found.versions])

    return reported


def _skips_a_record(read: Any) -> Any:
    async def batches(self: WiredLog, positions: Any) -> Any:
        count = 0
        async for partition, records in read(self, positions):
            count += 1
            kept = records[1:] if count % 50 == 49 else records
            if kept:
                yield partition, kept

    return batches


def _empties_its_table(run: Any) -> Any:
    async def watched(self: Agent) -> None:
        async def give_up() -> None:
            while True:
                await asyncio.sleep(5.0)
                if asyncio.get_running_loop().time() > self._last_message_at + 20.0:
                    self._table.table = EMPTY_TABLE
                    self._table._keep(EMPTY_TABLE)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(give_up())
            await run(self)

    return watched


def _stop_all_processes(run: Any) -> Any:
    """Stop all processes after five seconds, and inject no other fault."""

    async def stop_all(self: Nemesis) -> None:
        await asyncio.sleep(5.0)
        for process in self._world.processes:
            await process.crash()
        await asyncio.get_running_loop().create_future()

    return stop_all


BUGS = (
    Bug(
        "zone-stuck-without-an-alarm",
        "the forwarder skips one partition, without an alarm",
        "I20",
        lambda: patched((Forwarder, "_forward", _skips_one_partition)),
        SimulatedScenario(1, converges_within_s=70.0),
    ),
    Bug(
        "outbox-pruned-too-early",
        "a zone prunes its outbox at the folded position instead of the forwarded one",
        "I16",
        lambda: patched((Forwarder, "_prune_to", _prunes_at_the_folded_position)),
        SimulatedScenario(1),
    ),
    Bug(
        "append-storm",
        "every internal record is appended five times",
        "I17",
        lambda: patched((InternalEvents, "append", _appends_five_times)),
        SimulatedScenario(18),
    ),
    Bug(
        "record-in-the-wrong-topic",
        "a record for a zone is written to fleet",
        "I20",
        lambda: patched((Forwarder, "_append", _to_the_wrong_topic)),
        SimulatedScenario(1),
    ),
    Bug(
        "freeze-ignored",
        "a relay sends frames to a frozen zone",
        "I13",
        lambda: patched((ServedZone, "is_frozen_now", _not_frozen)),
        SimulatedScenario(6, faulty_s=20.0),
    ),
    Bug(
        "older-frame-accepted",
        "a device accepts a snapshot of an older version",
        "I7",
        lambda: patched((projections.rules.device_table, "apply", _accepts_older_snapshots)),
        SteppedScenario(1),
    ),
    Bug(
        "last-step-lost",
        "a device applies all steps of a frame but the last, and reports the digest in the frame",
        "I8",
        lambda: patched(
            (projections.rules.device_table, "_after", _drops_the_last_step),
            (projections.rules.device_table, "_digest_after", _digest_of_the_frame),
        ),
        SteppedScenario(1),
    ),
    Bug(
        "digest-not-checked",
        "a relay does not compare the digest of a device with that of its version",
        "I8",
        lambda: patched((ServedZone, "digest", returns())),
        SimulatedScenario(4, faulty_s=20.0),
    ),
    Bug(
        "unbounded-window",
        "a relay sends frames to a device without waiting for acknowledgements",
        "I17",
        lambda: patched((drivers.relays.delivery_state, "WINDOW", replaced_by(10_000))),
        SimulatedScenario(5),
    ),
    Bug(
        "report-storm",
        "a relay writes a report for every message of a device, without a pause",
        "I18",
        lambda: patched((drivers.relays.reports, "PROGRESS_S", replaced_by(0.0))),
        SimulatedScenario(11),
    ),
    Bug(
        "beacon-storm",
        "a replica writes a beacon every 50 ms",
        "I18",
        lambda: patched((eventstore.replicas.beacons, "EVERY_S", replaced_by(0.05))),
        SimulatedScenario(1),
    ),
    Bug(
        "report-ahead",
        "a relay reports a version that does not exist yet",
        "I9",
        lambda: patched((ReportBuffer, "event", _future_version)),
        SimulatedScenario(1),
    ),
    Bug(
        "fetch-skips-a-record",
        "some fetches omit their first record",
        "I22",
        lambda: patched((WiredLog, "read", _skips_a_record)),
        SimulatedScenario(12),
    ),
    Bug(
        "table-ages-out",
        "an agent empties its table when no relay has sent a message for a while",
        "I14",
        lambda: patched((Agent, "run", _empties_its_table)),
        SimulatedScenario(9, faulty_s=60.0, setup=lambda: patched((Nemesis, "run", _stop_all_processes))),
    ),
)

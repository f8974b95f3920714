"""Bugs in outgoing traffic: forwarders, relays, agents and devices, beacons and reports."""

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
from tests.seeded.bugs import Bug, Simulated, Stepped, does, instead, patched
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import WiredLog


def _one_zone_forgotten(forward: Any) -> Any:
    async def forwarded(self: Forwarder, partition: Any) -> None:
        if partition.number == 2:
            await asyncio.get_running_loop().create_future()
        await forward(self, partition)

    return forwarded


def _prunes_what_is_folded(prune_to: Any) -> Any:
    async def pruned(self: Forwarder, partition: Any, mark: int) -> None:
        await prune_to(self, partition, self._replica.position(partition))

    return pruned


def _five_times(append: Any) -> Any:
    async def appended(self: InternalEvents, partition: Any, key: str, event: Any) -> bool:
        return any([await append(self, partition, key, event) for _ in range(5)])

    return appended


def _to_the_wrong_topic(say: Any) -> Any:
    async def said(self: Forwarder, need: Any) -> bool:
        wrong = need._replace(target=FLEET_0) if str(need.target).startswith("zones") else need
        found: bool = await say(self, wrong)
        return found

    return said


def _never_frozen(_: Any) -> Any:
    return property(lambda self: False)


def _applies_anything(apply: Any) -> Any:
    def applied(table: DeviceTable, epoch: int, delta: Any, *, capacity: int) -> Any:
        older = table._replace(epoch=0, version=0) if not delta.from_version else table
        return apply(older, epoch, delta, capacity=capacity)

    return applied


def _drops_the_last_step(after: Any) -> Any:
    def held(table: DeviceTable, delta: Any, capacity: int) -> Mapping[Rule, frozenset[bytes]]:
        found: Mapping[Rule, frozenset[bytes]] = after(table, _without_the_last(delta), capacity)
        return found

    return held


def _without_the_last(delta: Any) -> Any:
    """All but the last of several steps."""
    return delta._replace(steps=delta.steps[:-1] or delta.steps)


def _trusts(digest_after: Any) -> Any:
    return lambda table, delta: delta.digest


def _next_version(event: Any) -> Any:
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


def _ages_out(run: Any) -> Any:
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


def _lights_out(run: Any) -> Any:
    """All processes are down from the fifth second on; there is no other fault."""

    async def only(self: Nemesis) -> None:
        await asyncio.sleep(5.0)
        for process in self._world.processes:
            await process.crash()
        await asyncio.get_running_loop().create_future()

    return only


BUGS = (
    Bug(
        "zone-stuck-without-an-alarm",
        "the forwarder forgets one partition, and nobody notices",
        "I20",
        lambda: patched((Forwarder, "_forward", _one_zone_forgotten)),
        Simulated(1, converges_within_s=70.0),
    ),
    Bug(
        "outbox-pruned-too-early",
        "a zone forgets what it has to forward as soon as it is folded",
        "I16",
        lambda: patched((Forwarder, "_prune_to", _prunes_what_is_folded)),
        Simulated(1),
    ),
    Bug(
        "append-storm",
        "whatever is stated is sent five times, to be sure",
        "I17",
        lambda: patched((InternalEvents, "append", _five_times)),
        Simulated(18),
    ),
    Bug(
        "record-in-the-wrong-topic",
        "what is meant for a zone is written to fleet",
        "I20",
        lambda: patched((Forwarder, "_append", _to_the_wrong_topic)),
        Simulated(1),
    ),
    Bug(
        "freeze-ignored",
        "a relay sends frames, frozen or not",
        "I13",
        lambda: patched((ServedZone, "is_frozen_now", _never_frozen)),
        Simulated(6, faulty_s=20.0),
    ),
    Bug(
        "older-frame-accepted",
        "a device takes a snapshot of an older version than it has",
        "I7",
        lambda: patched((projections.rules.device_table, "apply", _applies_anything)),
        Stepped(1),
    ),
    Bug(
        "last-step-lost",
        "a device follows all steps of a frame but the last, and believes the digest that it was told",
        "I8",
        lambda: patched(
            (projections.rules.device_table, "_after", _drops_the_last_step),
            (projections.rules.device_table, "_digest_after", _trusts),
        ),
        Stepped(1),
    ),
    Bug(
        "digest-not-checked",
        "a relay does not compare the digest of a device with that of its version",
        "I8",
        lambda: patched((ServedZone, "digest", does())),
        Simulated(4, faulty_s=20.0),
    ),
    Bug(
        "unbounded-window",
        "a relay sends a device frame after frame without an answer",
        "I17",
        lambda: patched((drivers.relays.delivery_state, "WINDOW", instead(10_000))),
        Simulated(5),
    ),
    Bug(
        "report-storm",
        "a relay reports whatever a device says, at once",
        "I18",
        lambda: patched((drivers.relays.reports, "PROGRESS_S", instead(0.0))),
        Simulated(11),
    ),
    Bug(
        "beacon-storm",
        "a beacon every 50 ms",
        "I18",
        lambda: patched((eventstore.replicas.beacons, "EVERY_S", instead(0.05))),
        Simulated(1),
    ),
    Bug(
        "report-ahead",
        "a relay reports a version that there is not yet",
        "I9",
        lambda: patched((ReportBuffer, "event", _next_version)),
        Simulated(1),
    ),
    Bug(
        "fetch-skips-a-record",
        "now and then a fetch leaves out its first record",
        "I22",
        lambda: patched((WiredLog, "read", _skips_a_record)),
        Simulated(1),
    ),
    Bug(
        "table-ages-out",
        "an agent gives up its table when it has heard no relay for a while",
        "I14",
        lambda: patched((Agent, "run", _ages_out)),
        Simulated(9, faulty_s=60.0, given=lambda: patched((Nemesis, "run", _lights_out))),
    ),
)

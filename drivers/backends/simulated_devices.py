"""All simulated devices of a process: the effects of frames and of time.

This module replaces both agents and devices, behind the messages of the agent link. `handle_frame` returns immediate
answers, `tick` later ones. No function waits or sends. A zone is a range of the records; an answer about devices of a
zone uses their numbers on the link.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from drivers.backends.simulated import DeviceFaults
from drivers.backends.simulated_records import NEVER, NONE, DeviceIndexes, DeviceRecords, devices_of, groups, mask
from drivers.backends.simulated_tables import NOTHING, SharedTables
from drivers.wire.agent_messages import Ack, Refusal
from drivers.wire.protocol import MAX_PARTS, TableStatus
from drivers.wire.relay_messages import Frame
from projections.rules.device_table import FrameRefused, RefusalCode

SLOW_S = 0.05
"""A device that takes longer acknowledges the receipt of the frame first."""

REBOOTS_S = 5.0
"""Maximum time between two random draws of the devices that reboot."""

TABLES_KEPT = 64

FAILED = FrameRefused(RefusalCode.DEVICE, "the device reported a failure")


class DeviceAnswer(NamedTuple):
    """The table status of some devices of a zone, or their refusal of the frame to `version`."""

    devices: DeviceIndexes
    version: int = 0
    refused: FrameRefused | None = None


class QueuedFrame(NamedTuple):
    """A frame that arrived while these devices applied another one."""

    frame: Frame
    devices: DeviceIndexes


class SimulatedDevices:
    """Simulated devices, zone by zone."""

    def __init__(self, faults: DeviceFaults, rng: random.Random) -> None:
        self.faults = faults
        self.tables = SharedTables()
        self.records = DeviceRecords()
        self.zones: list[range] = []
        self._queued: list[deque[QueuedFrame]] = []
        self._chance = np.random.default_rng(rng.getrandbits(64))
        self._rebooted_at = 0.0
        self._tables_max = TABLES_KEPT

    def add_zone(self, count: int) -> int:
        """Add a zone with `count` devices without a table; returns the zone's number."""
        faults, chance = self.faults, self._chance
        small, slow = chance.random(count) < faults.small_share, chance.random(count) < faults.slow_share
        capacities = np.where(small, faults.small_capacity, faults.capacity).astype(np.int32)
        factors = np.where(slow, faults.slow_factor, 1.0).astype(np.float32)
        self.zones.append(self.records.add(len(self.zones), capacities, factors))
        self._queued.append(deque())
        return len(self.zones) - 1

    @property
    def due_at(self) -> float:
        """When the state of a device changes next."""
        records = self.records
        due_at = min(float(at.min(initial=NEVER)) for at in (records.pending_at, records.hardware_at, records.up_at))
        return min(due_at, self._rebooted_at + REBOOTS_S) if self.faults.reboots_per_hour else due_at

    def handle_frame(self, zone: int, frame: Frame, now: float) -> list[Ack]:
        """Handle a frame on a zone's link; returns the immediate answers."""
        self._forget_tables()
        devices = devices_of(self.zones[zone], frame.dpus)
        devices = devices[self.records.up_at[devices] == NEVER]
        if self.faults.frame_loss:
            devices = devices[self._chance.random(len(devices)) >= self.faults.frame_loss]
        return self._acks(zone, self._offer(zone, QueuedFrame(frame, devices), now))

    def tick(self, now: float) -> dict[int, list[Ack]]:
        """The answers that are due by now, by zone."""
        records = self.records
        said: dict[int, list[DeviceAnswer]] = {}
        settled = np.flatnonzero(records.hardware_at <= now)
        if len(settled):
            records.hardware_at[settled] = NEVER
            records.in_hardware[settled] = self._versions(records.claimed[settled])
        for zone, devices in self._by_zone(settled):
            said.setdefault(zone, []).append(DeviceAnswer(devices))
        for zone, devices in self._by_zone(np.flatnonzero(records.pending_at <= now)):
            said.setdefault(zone, []).extend(self._finish_pending(zone, devices, now))
        return {zone: self._acks(zone, parts) for zone, parts in said.items()}

    def reboot(self, now: float) -> dict[int, DeviceIndexes]:
        """Take devices down at random, and bring up devices whose downtime has ended; returns the devices that came up,
        by zone."""
        records, faults = self.records, self.faults
        passed_s, self._rebooted_at = now - self._rebooted_at, now
        risen = np.flatnonzero(records.up_at <= now)
        self._bring_up(risen)
        if faults.reboots_per_hour:
            down = self._chance.random(records.count) < faults.reboots_per_hour * passed_s / 3600
            records.up_at[np.flatnonzero(down & (records.up_at == NEVER))] = now + faults.reboot_s
        return dict(self._by_zone(risen))

    def bring_all_up(self, zone: int) -> None:
        """Bring up all devices of a zone that are down."""
        places = self.zones[zone]
        self._bring_up(np.flatnonzero(self.records.up_at[places.start : places.stop] < NEVER) + places.start)

    def statuses(self, zone: int, devices: DeviceIndexes, *, read_back: bool) -> list[TableStatus]:
        """The table status of these devices of a zone. With `read_back`, the digest is that of the actual table."""
        records, parts = self.records, []
        held = records.actual if read_back else records.claimed
        fields = (records.claimed, held, records.received, records.in_hardware)
        for group in groups(devices, *fields):
            claimed, digest_of, received, in_hardware = (int(field[group[0]]) for field in fields)
            table = self.tables[claimed]
            levels = max(received, table.version), table.version, min(in_hardware, table.version)
            dpus = mask(self.zones[zone], group)
            parts.append(TableStatus(dpus, table.epoch, *levels, self.tables[digest_of].digest))
        return parts

    def heartbeat(self, zone: int) -> list[TableStatus]:
        """The heartbeats of a zone: every device that is up reads back its table."""
        records = self.records
        devices = devices_of(self.zones[zone], 0)
        devices = devices[records.up_at[devices] == NEVER]
        idle = devices[records.pending[devices] == NONE]
        records.in_sync[idle] = records.actual[idle] == records.claimed[idle]
        return self.statuses(zone, devices, read_back=True)

    # --- one frame ----------------------------------------------------------------------------------------------------

    def _offer(self, zone: int, offered: QueuedFrame, now: float) -> list[DeviceAnswer]:
        """Queue the frame for busy devices; the others validate it."""
        records, frame = self.records, offered.frame
        idle, busy = offered.devices, records.pending[offered.devices] != NONE
        if busy.any():
            self._queued[zone].append(QueuedFrame(frame, idle[busy]))
            idle = idle[~busy]
        said: list[DeviceAnswer] = []
        for devices in groups(idle, records.claimed, records.capacity):
            claimed, capacity = int(records.claimed[devices[0]]), int(records.capacity[devices[0]])
            outcome = self.tables.apply(claimed, frame.epoch, frame.delta, capacity)
            if isinstance(outcome, FrameRefused):
                said.append(DeviceAnswer(devices, frame.delta.to_version, outcome))
                continue
            if self.tables[claimed].epoch == frame.epoch:
                records.received[devices] = self.tables[outcome].version
            has_it = records.in_sync[devices] & (outcome == claimed)
            said.append(DeviceAnswer(devices[has_it]))
            said += self._begin(devices[~has_it], outcome, now)
        return said

    def _begin(self, devices: DeviceIndexes, table: int, now: float) -> list[DeviceAnswer]:
        """Start applying on these devices; returns the immediate answers."""
        records, faults = self.records, self.faults
        if not faults.latency_ms:
            return self._finish(devices, table, now)
        spread = self._chance.lognormal(0.0, faults.spread, len(devices))
        takes_s = faults.latency_ms / 1000 * spread * records.factor[devices]
        records.pending[devices] = table
        records.pending_at[devices] = now + takes_s
        return [DeviceAnswer(devices[takes_s > SLOW_S])]

    def _finish_pending(self, zone: int, devices: DeviceIndexes, now: float) -> list[DeviceAnswer]:
        records = self.records
        done = [(group, int(records.pending[group[0]])) for group in groups(devices, records.pending)]
        records.pending[devices], records.pending_at[devices] = NONE, NEVER
        said: list[DeviceAnswer] = []
        for group, table in done:
            said += self._finish(group, table, now)
        for _ in range(len(self._queued[zone])):
            said += self._offer(zone, self._queued[zone].popleft(), now)
        return said

    def _finish(self, devices: DeviceIndexes, table: int, now: float) -> list[DeviceAnswer]:
        """Finish applying on these devices, with their faults; returns the answers."""
        records, version = self.records, self.tables[table].version
        lies, failed, alarmed = self._draw(len(devices))
        whole = ~records.in_sync[devices] | (records.actual[devices] == records.claimed[devices])
        taking = devices[~(lies | failed) & whole]
        records.older[taking] = records.actual[taking]
        records.actual[taking] = table
        content, unhappy = devices[~(failed | alarmed)], devices[failed | alarmed]
        records.in_sync[unhappy], records.received[unhappy] = False, self._versions(records.claimed[unhappy])
        records.claimed[content], records.in_sync[content], records.received[content] = table, True, version
        if self.faults.hardware_ms:
            records.hardware_at[content] = now + self.faults.hardware_ms / 1000
        else:
            records.in_hardware[content] = version
        return [DeviceAnswer(content), DeviceAnswer(unhappy, version, FAILED)]

    def _draw(self, count: int) -> tuple[npt.NDArray[np.bool_], ...]:
        """Draw three sets of devices at random: with a false report of success, with a failure, and with a false report
        of failure."""
        faults = self.faults
        if not faults.lies + faults.failures + faults.false_alarms:
            nobody = np.zeros(count, np.bool_)
            return nobody, nobody, nobody
        lot = self._chance.random(count)
        fails_from, alarms_from = faults.lies, faults.lies + faults.failures
        alarms_to = alarms_from + faults.false_alarms
        return lot < fails_from, (lot >= fails_from) & (lot < alarms_from), (lot >= alarms_from) & (lot < alarms_to)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _acks(self, zone: int, said: Sequence[DeviceAnswer]) -> list[Ack]:
        """Answers as messages of the link; some are lost at random."""
        statuses: list[TableStatus] = []
        refusals: list[Refusal] = []
        for devices, version, refused in said:
            heard = devices
            if self.faults.answer_loss:
                heard = devices[self._chance.random(len(devices)) >= self.faults.answer_loss]
            parts = self.statuses(zone, heard, read_back=False)
            if refused is None:
                statuses += parts
            else:
                refusals += [Refusal(part, version, refused.code, refused.reason) for part in parts]
        return [
            Ack(statuses[start : start + MAX_PARTS], refusals[start : start + MAX_PARTS])
            for start in range(0, max(len(statuses), len(refusals)), MAX_PARTS)
        ]

    # --- records ------------------------------------------------------------------------------------------------------

    def _bring_up(self, devices: DeviceIndexes) -> None:
        """Bring these devices up after a reboot, with an older table or none."""
        if not len(devices):
            return
        records = self.records
        old = self._chance.random(len(devices)) < self.faults.old_share
        table = np.where(old, records.older[devices], NOTHING).astype(np.int32)
        records.claimed[devices] = records.actual[devices] = records.older[devices] = table
        records.received[devices] = records.in_hardware[devices] = self._versions(table)
        records.pending[devices], records.pending_at[devices] = NONE, NEVER
        records.hardware_at[devices], records.up_at[devices] = NEVER, NEVER
        records.in_sync[devices] = True
        records.boots[devices] += 1

    def _versions(self, tables: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
        return np.fromiter((self.tables[int(table)].version for table in tables), np.uint64, len(tables))

    def _by_zone(self, devices: DeviceIndexes) -> Iterator[tuple[int, DeviceIndexes]]:
        """Sorted devices, grouped by zone."""
        if not len(devices):
            return
        zones = self.records.zone[devices]
        starts = np.flatnonzero(np.diff(zones, prepend=-1)).tolist()
        for start, stop in zip(starts, [*starts, len(devices)][1:], strict=True):
            yield int(zones[start]), devices[start:stop]

    def _forget_tables(self) -> None:
        """Drop the tables that no device has, from time to time."""
        if len(self.tables) <= self._tables_max:
            return
        records = self.records
        used = {NOTHING}
        for field in (records.claimed, records.actual, records.older, records.pending):
            used.update((np.flatnonzero(np.bincount(field + 1)) - 1).tolist())
        self.tables.keep(used - {NONE})
        self._tables_max = max(TABLES_KEPT, 2 * len(self.tables))

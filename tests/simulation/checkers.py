"""What must hold of every run: each check reads the recorded history and the log folded afresh, and says what is wrong.

Nothing here asks the plane how it came to something. The folds are the reference for answers and digests; marks,
cliques and membership are also told from the raw events, by models too simple to share a mistake with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from drivers.backends.bmc import Task
from drivers.steps import ACTIONS
from eventstore.log import FLEET, INSTALLS, ZONES, Partition
from eventstore.partition import FoldedPartition
from projections.fleet_state import FleetState
from projections.zone_state import ZoneState
from schemas.events import MembershipChanged, NodesSuperseded, StepStarted, ZoneLimited
from tests.simulation.fresh import Step
from tests.simulation.history import History, Seen


class Freeze(NamedTuple):
    """A zone was frozen from one record of fleet to another, which was appended at `thaw_s`."""

    zone: str
    offset: int
    thaw_offset: float
    thaw_s: float


Steps = Mapping[Partition, Sequence[Step]]
Found = Iterator[str]
FLEET_0 = Partition(FLEET, 0)


def check_answers(history: History, steps: Steps) -> Found:
    """What a client was told is what the log says of that very record; and it is there."""
    by_offset = {(p, step.record.offset): step for p, found in steps.items() for step in found}
    for told in history.told:
        command_id, answer = told.event.envelope.command_id, told.answer
        step = by_offset.get((answer.partition, answer.offset))
        if step is None or step.event is None or step.answer is None:
            yield f"{command_id} was answered by {answer.partition}@{answer.offset}, where no command is"
        elif step.event.envelope.command_id != command_id:
            yield f"{command_id} was answered by the record of {step.event.envelope.command_id}"
        elif step.answer != answer:
            yield f"{command_id} was told {answer} by {told.process}, and the log says {step.answer}"


def check_effects(steps: Steps) -> Found:
    """A command has one effect at most, and none if it was refused; what is said twice is answered alike."""
    effects: dict[str, list[str]] = defaultdict(list)
    for partition, found in steps.items():
        for step in found:
            if step.event is None or step.answer is None:
                continue
            where = f"{partition}@{step.record.offset}"
            if step.rows:
                effects[step.event.envelope.command_id].append(where)
            if step.rows and step.answer.outcome.code == "refused":
                yield f"{where} was refused, and changed {sorted(step.rows)}"
            if step.rows and step.answer.offset != step.record.offset:
                yield f"{where} is a copy of {step.answer.offset}, and changed {sorted(step.rows)}"
    for command_id, places in sorted(effects.items()):
        if len(places) > 1:
            yield f"{command_id} took effect {len(places)} times: {', '.join(places)}"


def check_claims(history: History, steps: Steps) -> Found:
    """Whatever a replica saved of a partition is what a fresh fold has at that position."""
    digests = {(p, step.position): (step.digest, step.running) for p, found in steps.items() for step in found}
    for process, partition, head in history.claims:
        if head.position and digests.get((partition, head.position)) != (head.digest, head.running):
            yield f"{process} saved {partition} at {head.position} with other digests than a fresh fold has"


def check_marks(steps: Steps) -> Found:
    """A record caused by another partition counts if and only if it begins where the last one ended."""
    marks: dict[tuple[Partition, int], int] = {}
    for partition, found in steps.items():
        for step in found:
            event = step.event
            if isinstance(event, MembershipChanged):
                key, rows = (partition, event.cause_partition), step.rows.get("marks")
            elif isinstance(event, NodesSuperseded | ZoneLimited):
                key, rows = (partition, -1), step.rows.get("marks")
            else:
                continue
            first, end, mark = event.from_offset, event.to_offset, marks.get(key, 0)
            fits = first == mark and end > first
            if fits != bool(rows):
                yield f"{partition}@{step.record.offset}: [{first}, {end}) at mark {mark}"
            if fits:
                marks[key] = end


def check_devices(seen: Iterable[Seen], zone_of: Mapping[str, str], tables: Mapping[str, Mapping[int, bytes]]) -> Found:
    """Within a boot no device goes back, and what it has is always what its zone had at that version."""
    last: dict[str, Seen] = {}
    for now in seen:
        before = last.get(now.device)
        if before and before.boot == now.boot and (now.epoch, now.version) < (before.epoch, before.version):
            yield f"{now.device} went back from {before.version} to {now.version} at {now.at_s:.3f} s"
        last[now.device] = now
        if now.version and tables[zone_of[now.device]].get(now.version) != now.digest:
            yield f"{now.device} had version {now.version} with a digest that its zone never had"


def check_freezes(seen: Iterable[Seen], zone_of: Mapping[str, str], freezes: Iterable[Freeze]) -> Found:
    """What changed while a zone was frozen reaches its devices after the thaw, not before."""
    by_zone: dict[str, list[Freeze]] = defaultdict(list)
    for freeze in freezes:
        by_zone[freeze.zone].append(freeze)
    for now in seen:
        for freeze in by_zone[zone_of[now.device]]:
            if freeze.offset < now.version - 1 < freeze.thaw_offset and now.at_s < freeze.thaw_s:
                yield f"{now.device} got version {now.version} at {now.at_s:.3f} s, frozen since {freeze.offset}"


def check_union(zones: Iterable[ZoneState], fleet: FleetState) -> Found:
    """At rest, fleet has each node where its zone has it, as its zone has it, and no other."""
    stated: dict[str, tuple[object, ...]] = {}
    for zone in zones:
        for name, node in zone.nodes.rows.items():
            if name in stated:
                yield f"node {name} is in {stated[name][0]} and in {node.zone}"
            stated[name] = (node.zone, node.created_ms, node.uid, node.address4, node.address6, node.labels)
    known = {
        name: (m.zone, m.created_ms, m.uid, m.address4, m.address6, m.labels)
        for name, m in fleet.members.rows.items()
        if not m.held
    }
    for name in sorted(stated.keys() | known.keys()):
        if stated.get(name) != known.get(name):
            yield f"node {name}: zones say {stated.get(name)}, fleet says {known.get(name)}"


def check_rest(folded: Mapping[Partition, FoldedPartition]) -> Found:
    """Nothing is left to forward, in either direction."""
    fleet = folded[FLEET_0].state
    for partition, found in folded.items():
        if partition.topic != ZONES:
            continue
        if found.state.outgoing:
            yield f"{partition} still has changes of {found.state.outgoing[:3]} to forward"
        owed = [
            handed.offset
            for handed in fleet.queues.get(partition.number, ())
            if handed.offset >= found.state.fleet_mark
        ]
        if owed:
            yield f"fleet owes {partition} the records caused by {owed[:3]}"


def check_bmcs(begun: Mapping[str, Sequence[Task]], steps: Steps) -> Found:
    """A device was told to do only what the attempt that the log named was for, once per attempt, newest last."""
    named: dict[tuple[str, int], str] = {}
    for found in steps.values():
        for step in found:
            if isinstance(step.event, StepStarted) and step.rows:
                named[step.event.dpu, step.event.attempt] = ACTIONS[step.event.phase]
    for dpu, tasks in begun.items():
        told = [(task.token, task.action) for task in tasks]
        if len(set(told)) != len(told) or [token for token, _ in told] != sorted(token for token, _ in told):
            yield f"{dpu} was told twice, or by an attempt that was over: {told}"
        for token, action in told:
            if named.get((dpu, token)) != action:
                yield f"{dpu} was told to {action} by attempt {token}, which the log has for {named.get((dpu, token))}"


def check_attempts(steps: Steps) -> Found:
    """The attempts at a DPU only grow, also over its deletion and return."""
    last: dict[str, int] = {}
    for partition, found in steps.items():
        for step in found:
            for dpu, row in step.rows.get("dpus", ()) if partition.topic == ZONES else ():
                if row is not None and row.attempt < last.get(dpu, 0):
                    yield f"{partition}@{step.record.offset}: attempt {row.attempt} of {dpu} after {last[dpu]}"
                last[dpu] = max(last.get(dpu, 0), row.attempt if row is not None else 0)


def check_idle(zones: Iterable[ZoneState]) -> Found:
    """At rest nobody works on a DPU, and none waits for somebody to."""
    for zone in zones:
        for dpu in sorted({*zone.dpu_index.open, *zone.dpu_index.running}):
            row = zone.dpus.rows[dpu]
            if not (row.paused and row.standing == "open"):
                yield f"{dpu} stands at {row.phase}, {row.standing}, attempt {row.attempt}: {row.message}"


def check_quarantine(folded: Mapping[Partition, FoldedPartition]) -> Found:
    """The plane writes nothing that its own folds do not take."""
    for partition, found in folded.items():
        if found.quarantined and partition.topic != INSTALLS:
            yield f"{partition} has {found.quarantined} quarantined records: {list(found.quarantine)[:2]}"

"""Appends the Nodes of one source cluster to topic zones, as joins, changes, moves and leaves.

The edge compares the Nodes that it watches with the nodes in the folds, and appends the difference until there is none.
So a lost append, a second edge of the same source, or a restart costs another comparison and no more. If a Node is
deleted, the edge appends its leave. If a complete list lacks a Node, the edge infers a leave: the folds accept an
inferred leave only with that list as evidence, and hold leaves over a budget. Without a complete list, the edge infers
no leave. A list says nothing about nodes that changed in the folds after it began: another edge may have joined them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import TypeAlias

from commands.kubernetes.node_facts import NodeFacts, NodeRules, read_node
from commands.kubernetes.node_plan import (
    FoldedNode,
    ListFacts,
    ahead_of,
    folded_node,
    is_in_folds,
    joins,
    last_list,
    leaves,
    snapshot,
)
from eventstore.backoff import backoff_ceiling
from eventstore.errors import AppendUnknown, FatalError, PlaneError
from eventstore.folding.fold import Outcome
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES, Partition
from eventstore.reasons import CLOCK_REASONS
from eventstore.replicas.replica import Replica
from projections.field_checks import MAX_AHEAD_MS
from projections.fold_states import FoldStates
from projections.kubernetes.object_events import ObjectEvent, Regarding, Report, ignore
from projections.kubernetes.zone_notices import ZoneNotice, ZoneNotices
from schemas.events import Envelope, NodesJoined, NodesLeft, SnapshotCompleted
from schemas.kubernetes.objects import Node

NodeEvent: TypeAlias = NodesJoined | NodesLeft | SnapshotCompleted

logger = logging.getLogger(__name__)

LINGER_S = 0.02
"""How long watched changes linger, so that the changes of a zone share one record."""
SUBMIT_TIMEOUT_S = 10.0
CONCURRENT = 16
"""Maximum number of records that are submitted at the same time."""
RETRY_S = 1.0
RETRY_S_MAX = 30.0
SLICE = 500
"""Maximum number of comparisons before other tasks of the event loop run."""
LATE_S = 200.0
"""Time after which nodes are compared again whose append has an unknown outcome. A record lands at most LATE_MS after
it was issued, by clocks that may differ by AHEAD_MS. A late join would revive a deleted node, or move a node back. All
nodes are compared again this time after the start, because the former process may have died during an append."""
LATE_CHECK_S = 10.0
REFUSED_RETRY_S = 600.0
"""Time after which refused nodes are submitted again, because the reason may no longer apply."""


class NodeEdge:
    """Appends what the log lacks of the nodes of one source, while `run` runs.

    A list-watch calls this object: it implements the protocols `Handler` and `ListVersions` of `list_watch`.
    """

    def __init__(
        self,
        replica: Replica,
        rules: NodeRules,
        *,
        now_ms: Callable[[], int],
        rng: Random,
        edge: str = "",
        report: Report = ignore,
        notices: ZoneNotices | None = None,
    ) -> None:
        self.faults: dict[str, tuple[str, ...]] = {}
        """Faults of Node objects, by the node's name."""
        self.refused: dict[str, str] = {}
        """The reason why the folds refused a node, by the node's name."""
        self.joined = self.left = 0
        """Number of joins and leaves that the folds accepted. A refused or a repeated one does not count."""
        self.retained = 0
        """Number of nodes that the last complete list lacks, but that stay in the folds because the list is not
        sufficient evidence of a leave."""
        self._replica = replica
        self._states = FoldStates(replica)
        self._rules = rules
        self._now_ms = now_ms
        self._rng = rng
        self._report = report
        self._notices = notices or ZoneNotices()
        self._actor = f"kubernetes/{rules.source}/{edge or replica.name}"
        self._present: dict[str, NodeFacts] = {}
        self._listed: set[str] | None = None
        self._began: Mapping[Partition, int] = {}
        """The positions of the folds when the present list began."""
        self._list_positions: Mapping[Partition, int] = {}
        """The positions of the folds when the last complete list began."""
        self._dirty: set[str] = set()
        self._deleted: dict[str, tuple[int, str]] = {}
        self._unsure_s: dict[str, float] = {}
        """The time at which a node must be compared again, by the node's name."""
        self._ended: dict[str, tuple[float, tuple[int, str]]] = {}
        """Deletions of the last minutes, by the node's name: their time, and the incarnation."""
        self._is_list_new = False
        self._went_back = False
        self._version = 0
        """The resource version of the last complete list."""
        self._work = asyncio.Event()
        self.list_again: Callable[[], None] = _nothing
        """Have the source listed again. The list-watch, which needs this edge as its handler, is set afterwards."""

    @property
    def count(self) -> int:
        """Number of watched Nodes of the source."""
        return len(self._present)

    # -- the handler of the list-watch

    def list_began(self) -> None:
        self._listed = set()
        self._began = {partition: self._replica.position(partition) for partition in self._replica.partitions(ZONES)}

    def present(self, item: Node) -> None:
        read = read_node(item, self._rules)
        name = f"{self._rules.source}/{item.metadata.name}"
        self.faults.pop(name, None)
        if read.faults:
            self.faults[name] = read.faults
        if self._listed is not None:
            self._listed.add(name)
        if read.facts is None or self._present.get(name) == read.facts:
            return
        self._present[name] = read.facts
        self._deleted.pop(name, None)
        self._mark(name)

    def deleted(self, item: Node) -> None:
        name = f"{self._rules.source}/{item.metadata.name}"
        self.faults.pop(name, None)
        if self._listed is not None:
            self._listed.discard(name)
        self._present.pop(name, None)
        self._deleted[name] = (item.metadata.created_ms, item.metadata.uid)
        self._ended[name] = (_now_s(), self._deleted[name])
        self._mark(name)

    def last_version(self) -> int:
        return last_list(self._states, self._rules.source).version

    def record_version(self, version: int) -> None:
        self._version = version

    def list_completed(self, *, went_back: bool) -> None:
        listed, self._listed = self._listed or set(), None
        self._list_positions = self._began
        self._went_back = self._went_back or went_back
        self._present = {name: facts for name, facts in self._present.items() if name in listed}
        self._dirty.update(self._present)
        self._is_list_new = True
        self._work.set()

    def _mark(self, name: str) -> None:
        self.refused.pop(name, None)
        self._dirty.add(name)
        self._work.set()

    # -- the reconciler

    async def run(self) -> None:
        """Append differences until cancelled."""
        await self._replica.ready()
        failures = 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat_refused())
            tasks.create_task(self._repeat_unsure())
            while True:
                await self._work.wait()
                self._work.clear()
                await asyncio.sleep(LINGER_S)
                is_done = await self._reconcile()
                if not is_done:
                    await asyncio.sleep(backoff_ceiling(failures, RETRY_S, RETRY_S_MAX) * self._rng.uniform(0.5, 1.0))
                    self._work.set()
                failures = 0 if is_done else failures + 1

    async def _reconcile(self) -> bool:
        """Append what the folds lack. Returns whether nothing is left to append."""
        dirty, self._dirty = self._dirty, set()
        lacking: list[NodeFacts] = []
        gone: dict[str, FoldedNode] = {}
        async for name in _sliced(sorted(dirty)):
            facts = self._present.get(name)
            if facts is not None:
                if name not in self.refused and not is_in_folds(self._states, facts):
                    lacking.append(facts)
            elif (deleted := self._deleted.get(name)) is not None and self._is_in_folds(name, deleted):
                gone[name] = FoldedNode(self._zone_of(name), *deleted)
        events: list[NodeEvent] = [*joins(self._envelope, lacking), *leaves(self._envelope, gone)]
        failed = await self._submit_all(events)
        for name in dirty - failed:
            self._deleted.pop(name, None)
        self._dirty |= failed
        if self._is_list_new and not failed:
            self._is_list_new = False
            self._is_list_new = not await self._infer_leaves()
        return not self._dirty and not self._is_list_new

    def _is_in_folds(self, name: str, deleted: tuple[int, str]) -> bool:
        found = folded_node(self._states, name)
        return found is not None and (found.created_ms, found.uid) <= deleted

    def _zone_of(self, name: str) -> str:
        found = folded_node(self._states, name)
        assert found is not None, "the caller has checked it, without an await"
        return found.zone

    async def _infer_leaves(self) -> bool:
        """Append a record of the last complete list, and the leaves of the nodes that the list lacks. Returns whether
        all records are known to be folded.

        A list without any Node is not evidence of a leave. A list from after a restore of the API server is not
        evidence either, because nodes may have joined after the backup. Without evidence, the nodes stay in the folds
        and are counted, until the source lists them again or an operator removes them. The record contains the version
        of the list and whether there was a restore, so the edge knows both after a restart.
        """
        by_zone: defaultdict[str, list[NodeFacts]] = defaultdict(list)
        for facts in self._present.values():
            by_zone[facts.zone].append(facts)
        absent, last = await self._absent(), last_list(self._states, self._rules.source)
        self._went_back = (self._went_back or last.restored) and bool(absent)
        is_evidence = bool(self._present) and not self._went_back
        self._report_retained({} if is_evidence else absent)
        found = ListFacts(self._rules.source, self._version, len(self._present), self._went_back)
        if not self._present or (not absent and (found.version, found.restored) == (last.version, last.restored)):
            return True
        is_complete = True
        for zone in sorted(absent) or [min(by_zone)]:
            event = snapshot(self._envelope, zone, found, by_zone[zone])
            failed = await self._submit_all([event])
            if not failed and is_evidence and absent:
                failed = await self._submit_all(leaves(self._envelope, absent[zone], list_hash=event.list_hash))
            is_complete = is_complete and not failed
        return is_complete

    def _report_retained(self, stays: Mapping[str, Mapping[str, FoldedNode]]) -> None:
        retained = sum(map(len, stays.values()))
        self._notices.replace({zone: self._notice(len(names)) for zone, names in stays.items()})
        if retained and retained != self.retained:
            why = "the API server was restored from a backup" if self._went_back else "it lists no Node at all"
            logger.warning(
                "nodes kept although the source lacks them: %s; `dpuplane nodes leave` removes them",
                why,
                extra={"source": self._rules.source, "zones": len(stays), "nodes": retained, "first": min(stays)},
            )
        self.retained = retained

    def _notice(self, count: int) -> ZoneNotice:
        nodes = f"{count} node{'s' if count > 1 else ''} of source {self._rules.source}"
        cause = "the API server was restored from an older backup" if self._went_back else "its list had no Node at all"
        message = f"{nodes} stay, but the API server lists them no more: {cause}; `dpuplane nodes leave` removes them"
        return ZoneNotice("RestoredFromBackup" if self._went_back else "NodesRetained", message)

    async def _absent(self) -> Mapping[str, dict[str, FoldedNode]]:
        """The nodes of this source that the folds had when the last complete list began, and that it lacks, by zone."""
        prefix = f"{self._rules.source}/"
        absent: defaultdict[str, dict[str, FoldedNode]] = defaultdict(dict)
        for partition, began in self._list_positions.items():
            zones = self._states.zones_at(partition)
            async for name in _sliced(list(zones.nodes.rows)):
                if name.startswith(prefix) and name not in self._present:
                    row = zones.nodes.rows.get(name)
                    if row is not None and row.changed < began:
                        absent[row.zone][name] = FoldedNode(row.zone, row.created_ms, row.uid)
        return absent

    async def _submit_all(self, events: Iterable[NodeEvent]) -> set[str]:
        """Submit records, several at a time. Returns the names of nodes whose record is not known to be folded."""
        failed: set[str] = set()
        slots = asyncio.Semaphore(CONCURRENT)

        async def submit(event: NodeEvent) -> None:
            async with slots:
                failed.update(await self._submit(event))

        async with asyncio.TaskGroup() as tasks:
            for event in events:
                tasks.create_task(submit(event))
        return failed

    async def _submit(self, event: NodeEvent) -> list[str]:
        names = [event.zone] if isinstance(event, SnapshotCompleted) else event.names
        about = {"source": self._rules.source, "zone": event.zone, "event": type(event).__name__}
        partition = self._replica.partition_for(ZONES, event.zone)
        try:
            answer = await self._replica.submit(partition, event.zone.encode(), event, timeout_s=SUBMIT_TIMEOUT_S)
        except FatalError:
            raise
        except PlaneError as error:
            logger.warning("event about nodes not confirmed, retrying: %s", error, extra=about)
            if isinstance(error, AppendUnknown) and not isinstance(event, SnapshotCompleted):
                self._unsure_s |= dict.fromkeys(names, _now_s() + LATE_S)
            return names
        outcome = answer.outcome
        is_refused_whole = outcome.code == "refused" and not outcome.items
        if is_refused_whole and (outcome.reason_code in CLOCK_REASONS or isinstance(event, SnapshotCompleted)):
            logger.warning("event about nodes refused, retrying: %s", outcome.reason, extra=about)
            return names
        match event:
            case NodesJoined() if is_refused_whole and len(names) > 1:
                return await self._join_in_parts(event, outcome, self._replica.folded(partition).time_ms + MAX_AHEAD_MS)
            case NodesJoined():
                self.joined += _accepted(names, outcome)
                self._take_refusals(event, outcome)
            case NodesLeft():
                self.left += _accepted(names, outcome)
                self._take_refusals(event, outcome)
        return []

    async def _join_in_parts(self, event: NodesJoined, outcome: Outcome, latest_ms: int) -> list[str]:
        """Submit the nodes of a refused record again, because the fault of one node refuses its whole record. If the
        fault is a creation time, the nodes that were created after `latest_ms`, the limit of the log, stay refused, and
        one record contains the others. If there are no such nodes, each half of the nodes becomes a record. Returns the
        names of nodes whose record is not known to be folded."""
        stated = [facts for name in event.names if (facts := self._present.get(name)) is not None]
        ahead = ahead_of(stated, latest_ms) if outcome.reason_fields.get("field") == "created_ms" else {}
        for facts in ahead.values():
            self._refuse(facts.node.name, facts.uid, outcome.reason, outcome.reason_code)
        rest = [facts for facts in stated if facts.node.name not in ahead]
        middle = len(rest) if ahead else (len(rest) + 1) // 2
        failed: list[str] = []
        for part in (rest[:middle], rest[middle:]):
            for record in joins(self._envelope, part):
                failed += await self._submit(record)
        return failed

    def _take_refusals(self, event: NodesJoined | NodesLeft, outcome: Outcome) -> None:
        """Record the nodes that the fold refused: single ones, or all of the record."""
        uids = dict(zip(event.names, event.uids, strict=True))
        if outcome.code == "refused" and not outcome.items:
            for name, uid in uids.items():
                self._refuse(name, uid, outcome.reason, outcome.reason_code)
        for item in outcome.items:
            if item.code == "refused":
                self._refuse(item.name, uids[item.name], item.reason, item.reason_code)

    def _refuse(self, name: str, uid: str, reason: str, code: str) -> None:
        self.refused[name] = reason
        if name in self._present:
            node = Regarding("v1", "Node", name.removeprefix(f"{self._rules.source}/"), uid)
            message = f"the plane refused this Node: {reason}"
            self._report(ObjectEvent(node, "NodeRefused", message, code=code))

    def _envelope(self, subject: str) -> Envelope:
        return envelope(subject, self._actor, uuid7(self._now_ms(), self._rng))

    async def _repeat_unsure(self) -> None:
        """Compare nodes again once no record of theirs can land any more. Records that were on their way when this edge
        began may then have joined a node that this edge has never known: only a new list is evidence against it."""
        all_s = _now_s() + LATE_S
        while True:
            await asyncio.sleep(LATE_CHECK_S)
            now_s = _now_s()
            if all_s <= now_s:
                self._unsure_s |= dict.fromkeys((*self._present, *self._ended), now_s)
                all_s = inf
                if await self._has_unknown():
                    self.list_again()
            due = {name for name, due_s in self._unsure_s.items() if due_s <= now_s}
            for name in due:
                del self._unsure_s[name]
                if name in self._ended and name not in self._present:
                    self._deleted.setdefault(name, self._ended[name][1])
            if due:
                self._dirty |= due
                self._work.set()
            for name in [name for name, (ended_s, _) in self._ended.items() if ended_s <= now_s - 2 * LATE_S]:
                del self._ended[name]

    async def _has_unknown(self) -> bool:
        """Whether the folds have a node of this source that the edge does not watch."""
        prefix = f"{self._rules.source}/"
        for zones in self._states.all_zones():
            async for name in _sliced(list(zones.nodes.rows)):
                if name.startswith(prefix) and name not in self._present:
                    return True
        return False

    async def _repeat_refused(self) -> None:
        while True:
            await asyncio.sleep(REFUSED_RETRY_S * self._rng.uniform(0.8, 1.2))
            self._dirty.update(self.refused)
            self.refused.clear()
            self._work.set()


def _accepted(names: Sequence[str], outcome: Outcome) -> int:
    """Number of nodes whose join or leave changed the state, or will change it once its hold is approved."""
    codes = dict.fromkeys(names, outcome.code) | {item.name: item.code for item in outcome.items}
    return sum(code not in ("refused", "unchanged") for code in codes.values())


def _nothing() -> None:
    """The default of `list_again`, for an edge without a list-watch."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _sliced(names: Sequence[str]) -> AsyncIterator[str]:
    """Yield the names. Other tasks of the event loop run after every SLICE names."""
    for place, name in enumerate(names):
        if place and place % SLICE == 0:
            await asyncio.sleep(0)
        yield name

"""The Nodes of source clusters: the folds have each of them, and lose none without a reason.

The API server's own commits are the reference, with the lists that it showed and its restores from a backup.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import NamedTuple

from eventstore.log import ZONES
from projections.zones.rows import Node
from schemas.events import NodesLeft, SnapshotCompleted
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Step
from tests.simulation.history import NodeCommitted, NodesHidden, ProcessUptime

Found = Iterator[str]

ROLE = "kubernetes"


class _Leave(NamedTuple):
    """A leave of one incarnation that a zone accepted, as a zone's row shows it. `list_version` is the resource version
    of the last list that the partition had from the source.
    """

    step: Step
    name: str
    row: Node
    list_version: int


def check_present(run: Evidence) -> Found:
    """I27, at rest: the folds have exactly the Nodes of each source cluster, each in its zone and incarnation. After a
    restore, nodes that the cluster lacks may stay, as long as the folds record that their last list is no evidence. A
    newer incarnation than the present one stays if the cluster had it before a restore: the restore removed it, or its
    deletion.
    """
    folded = {name: row for zones in run.zone_states for name, row in zones.nodes.rows.items()}
    lists = [(row.issued_ms, source, row) for zones in run.zone_states for source, row in zones.lists.rows.items()]
    retains = {source: row.restored for _, source, row in sorted(lists, key=lambda each: each[0])}
    commits = _commits(run)
    for name, found in sorted(commits.items()):
        last, row = found[-1], folded.get(name)
        if last.state in ("present", "restored"):
            has = None if row is None else (row.zone, row.created_ms, row.uid)
            is_newer = row is not None and row.created_ms > last.created_ms and _was_undone(found, row.uid)
            if has != (last.zone, last.created_ms, last.uid) and not is_newer:
                yield f"Node {name} is {last.uid} of {last.created_ms} in {last.zone}, and the folds have {has}"
        elif row is not None and not retains.get(last.source):
            yield f"Node {name} is {last.state} since {last.at_s:.1f} s, and the folds have {row.uid} in {row.zone}"
    sources = tuple({f"{commit.source}/" for commit in run.history.of(NodeCommitted)})
    for name in sorted(folded.keys() - commits.keys()):
        if sources and name.startswith(sources):
            yield f"the folds have {name}, and there was no such Node"


def check_leaves(run: Evidence) -> Found:
    """I27: an edge states a leave only of an incarnation that its cluster has deleted, or that a complete list lacked.
    A list after a restore is no evidence.
    """
    commits = _commits(run)
    for leave in _leaves(run):
        found = commits.get(leave.name)
        if found is None:
            continue
        event, at_s = leave.step.event, run.appended_s(leave.step.partition, leave.step.record.offset)
        assert isinstance(event, NodesLeft)
        where = f"{leave.step.partition}@{leave.step.record.offset}: {leave.name} {leave.row.uid}"
        if any(commit.state == "deleted" and commit.at_s <= at_s and _ends(commit, leave.row) for commit in found):
            continue
        if not event.inferred:
            yield f"{where} left, and the Node was not deleted"
        elif not _was_hidden(run, leave, at_s) and not _may_miss_the_restore(run, leave, found, at_s):
            yield f"{where} left by a list, and no list lacked it except after a restore"


def _was_undone(found: Sequence[NodeCommitted], uid: str) -> bool:
    """Whether the cluster had this incarnation, and was restored from a backup afterwards."""
    states = [commit.state for commit in dropwhile(lambda commit: commit.uid != uid, found)]
    return "lost" in states or "restored" in states


def _commits(run: Evidence) -> Mapping[str, Sequence[NodeCommitted]]:
    """The commits of each Node, by the node's name."""
    found: defaultdict[str, list[NodeCommitted]] = defaultdict(list)
    for commit in run.history.of(NodeCommitted):
        found[f"{commit.source}/{commit.name}"].append(commit)
    return found


def _leaves(run: Evidence) -> Iterator[_Leave]:
    """The rows that leaves removed."""
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        rows: dict[str, Node] = {}
        versions: dict[str, int] = {}
        for step in steps:
            if isinstance(step.event, SnapshotCompleted):
                versions[step.event.source] = step.event.version
            for name, row in step.rows.get("nodes", ()):
                before = rows.pop(name, None)
                if row is not None:
                    rows[name] = row
                elif before is not None and isinstance(step.event, NodesLeft):
                    yield _Leave(step, name, before, versions.get(name.partition("/")[0], 0))


def _ends(commit: NodeCommitted, row: Node) -> bool:
    """Whether a deletion ends an incarnation in the folds: it is about this one, or about a later one."""
    return commit.uid == row.uid or commit.created_ms > row.created_ms


def _was_hidden(run: Evidence, leave: _Leave, at_s: float) -> bool:
    """Whether a list lacked a Node that existed."""
    return any(
        hidden.from_s <= at_s and leave.name.removeprefix(f"{hidden.source}/") in hidden.names
        for hidden in run.history.of(NodesHidden)
    )


def _may_miss_the_restore(run: Evidence, leave: _Leave, found: Sequence[NodeCommitted], at_s: float) -> bool:
    """Whether an edge could not know of the restore that removed a Node: an edge became ready since the Node's last
    commit, or the server had passed the version of that commit again before the list.
    """
    lost = next((commit for commit in reversed(found) if commit.state == "lost" and commit.at_s <= at_s), None)
    if lost is None:
        return False
    last = [commit for commit in found if commit.at_s <= lost.at_s and commit.state != "lost"][-1]
    uptimes = (uptime for uptime in run.history.of(ProcessUptime) if ROLE in uptime.roles)
    starts = [uptime.from_s if uptime.ready_s is None else uptime.ready_s for uptime in uptimes]
    return leave.list_version >= last.version or any(last.at_s <= start_s <= at_s for start_s in starts)

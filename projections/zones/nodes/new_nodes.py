"""Nodes that join and are new to the partition, as columns. They come from one record with many nodes, or from many
records with one node each.

Clients that join nodes one at a time write records of one node; they are most of a replay. Consecutive records of this
kind (a run) are one batch here. The checks of its columns cost next to nothing per node, and the result is the same as
record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from sys import intern
from typing import NamedTuple

from eventstore.avro.columns import EventColumns
from eventstore.folding.fold import RecordMetadata
from projections.actors import is_node_agent
from projections.columns import expand, repeated
from projections.zones.rows import MAX_ACTOR, CauseRow, Node
from schemas.events import Envelope, NodesJoined


class NewNodes(NamedTuple):
    """The columns of new nodes; one zone, offset, time or actor may stand for all nodes.

    `actors` and `command_ids` identify the commands behind the records. `command_ids` is empty if each record has one
    node, whose uid is the command's id.
    """

    event: NodesJoined
    zones: Sequence[str]
    offsets: Sequence[int]
    append_ms: Sequence[int]
    actors: Sequence[str]
    command_ids: Sequence[str]

    def rows(self) -> Iterator[Node]:
        """All rows, in order."""
        columns = repeated(self.zones), *expand(self.event), repeated(self.offsets), repeated(self.append_ms)
        return islice(map(Node, *columns), len(self.event.names))

    def causes(self) -> dict[str, CauseRow]:
        """The command behind each record, by the record's offset; empty if the nodes' uids are the command ids."""
        return dict(zip(map(str, self.offsets), map(CauseRow, self.command_ids, self.actors), strict=False))


def of_record(event: NodesJoined, at: RecordMetadata) -> NewNodes:
    """The nodes of one record."""
    command_ids = (event.envelope.command_id,) if event.uids or len(event.names) > 1 else ()
    actors = (event.envelope.actor[:MAX_ACTOR],)
    return NewNodes(event, (intern(event.zone),), (at.offset,), (at.append_ms,), actors, command_ids)


def of_run(run: EventColumns, count: int, offsets: Sequence[int], append_ms: Sequence[int]) -> NewNodes | None:
    """The nodes of the first `count` of these NodesJoined. None if the records do not have the columns of single-node
    joins, or if one of them comes from a node agent."""
    columns, ids = run.columns, run.ids[:count]
    actors: list[str] = columns["actor"][:count]
    if not columns["names"] or bool(columns["created_ms"]) != bool(columns["uids"]) or any(map(is_node_agent, actors)):
        return None
    labels = [_labels_of(event) for event in run.examples]
    if None in labels:
        return None
    zones = list(map(intern, columns["zone"][:count]))
    width4, width6 = (len(columns[name]) // len(run.ids) for name in ("addresses4", "addresses6"))
    event = NodesJoined(
        Envelope(ids[0], "", "", run.issued_ms[0]),
        zones[0],
        columns["names"][:count],
        (columns["created_ms"] or run.issued_ms)[:count],
        (columns["uids"] or ids)[:count],
        columns["addresses4"][: width4 * count],
        columns["addresses6"][: width6 * count],
        [found for found in labels if found is not None],
        list(run.example_of[:count]),
    )
    command_ids = ids if columns["uids"] else ()
    return NewNodes(event, zones, offsets[:count], append_ms[:count], [a[:MAX_ACTOR] for a in actors], command_ids)


def _labels_of(event: NodesJoined) -> dict[str, str] | None:
    """The labels of the only node of this record; None if the columns are not those of a single node."""
    if not event.label_sets and not event.label_index:
        return {}
    return event.label_sets[0] if len(event.label_sets) == 1 and event.label_index == [0] else None

"""Bulk fold of many records that each join one node. Clients write such records when they join nodes one at a time;
they are most of a replay.

Consecutive records of this kind (a run) are parsed column by column, a short run record by record, and checked as if it
were one record of many nodes, because the column checks cost next to nothing per node. If the checks pass, and every
name is new and occurs once, the result is the same as that of `nodes.join` for each record. The first join of an
existing node ends the run before it. For any other doubt, or a join by a node agent, `nodes.join` decides the whole run
record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import intern
from typing import NamedTuple, TypeVar

from eventstore.avro.codec import HEADER_BYTES, decode
from eventstore.avro.scan import Irregular, Scan
from eventstore.errors import Undecodable
from eventstore.ids import InvalidCommandId, issued_at_ms
from projections.actors import NODE_AGENT_PREFIX, is_node_agent
from projections.columns import fault_of_nodes, first_nodes, first_values, intern_labels
from projections.field_checks import check_zone
from projections.zones.joined import Joined
from projections.zones.rows import MAX_ACTOR
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import Envelope, NodesJoined

_AGENT = NODE_AGENT_PREFIX.encode()

RUN_OF = "NodesJoined"

SCANNED_MIN = 32
"""From this many records on, parsing them side by side is faster than one by one."""

T = TypeVar("T")

_Labels = dict[str, str]


class SingleJoins(NamedTuple):
    """Commands of one node each, side by side; `as_one` is the record that would state all of them, without a zone.

    One actor may stand for all. With `has_uids` each command states the uid of its node; without, its id is the uid.
    """

    ids: list[str]
    actors: list[str]
    issued_ms: list[int]
    zones: list[str]
    as_one: NodesJoined
    has_uids: bool


def read(values: Sequence[bytes]) -> SingleJoins | None:
    """Parse these record values; None unless each is a plain join of one node."""
    try:
        return _scanned(values) if len(values) >= SCANNED_MIN else _decoded(values)
    except (Irregular, Undecodable, InvalidCommandId):
        return None


def decide(
    state: ZonesState, joins: SingleJoins, offsets: Sequence[int], append_ms: Sequence[int], time_ms: int
) -> tuple[Joined, int] | None:
    """The change of the leading records, up to the first that names an existing node; None unless every one is
    accepted."""
    count = _new_first(state, joins.as_one.names)
    event, zones = first_nodes(joins.as_one, count), joins.zones[:count]
    if not count or any(check_zone("zone", zone) for zone in sorted(set(zones))) or fault_of_nodes(event, time_ms):
        return None
    actors = [actor[:MAX_ACTOR] for actor in first_values(joins.actors, count)]
    command_ids = joins.ids[:count] if joins.has_uids else ()
    return Joined(event, zones, offsets[:count], append_ms[:count], actors, command_ids), count


def _new_first(state: ZonesState, names: Sequence[str]) -> int:
    """The number of leading records that each name a new node."""
    if len(set(names)) == len(names) and state.has_none_of(names):
        return len(names)
    seen: set[str] = set()
    for count, name in enumerate(names):
        if name in seen or not state.has_none_of((name,)):
            return count
        seen.add(name)
    return len(names)


def evolve(state: ZonesState, change: Joined) -> None:
    state.join_all(change)


def changes_of(change: Joined) -> Iterable[ZonesChange]:
    """The change of each of these records."""
    return (
        ZonesChange(nodes={name: node}, fresh=True)
        for name, node in zip(change.event.names, change.nodes(), strict=True)
    )


def _scanned(values: Sequence[bytes]) -> SingleJoins:
    """The fields in the order of the schema, up to the labels."""
    scan = Scan(values, HEADER_BYTES)
    ids, inside_ms = scan.ids()
    actors = scan.last_text(2, is_no=_AGENT)
    issued_ms = scan.numbers()
    zones = list(map(intern, scan.texts()))
    if not scan.has_item() or (issued_ms != inside_ms).any():
        raise Irregular
    names = scan.texts()
    scan.end_of_array()
    times_ms = created_ms = issued_ms.tolist()
    if scan.has_item():
        created_ms = scan.numbers().tolist()
        scan.end_of_array()
    uids = ids
    if scan.has_item():
        uids = scan.texts()
        scan.end_of_array()
    if (created_ms is times_ms) != (uids is ids):
        raise Irregular
    addresses = scan.packed(4), scan.packed(16)
    said = Envelope(ids[0], "", "", times_ms[0])
    as_one = NodesJoined(said, zones[0], names, created_ms, uids, *addresses, *_scanned_labels(values, scan.rest()))
    return SingleJoins(ids, actors, times_ms, zones, as_one, uids is not ids)


def _scanned_labels(values: Sequence[bytes], rests: Sequence[bytes]) -> tuple[list[_Labels], list[int]]:
    """The distinct label sets, and the number of each record's set. Records with equal last bytes have equal labels."""
    example = dict(zip(rests, values, strict=True))
    number_of = {rest: number for number, rest in enumerate(example)}
    return [_labels_of(_join(value)) for value in example.values()], [number_of[rest] for rest in rests]


def _decoded(values: Sequence[bytes]) -> SingleJoins:
    events = list(map(_join, values))
    actors = [event.envelope.actor for event in events]
    if any(map(is_node_agent, actors)):
        raise Irregular
    ids = [event.envelope.command_id for event in events]
    times_ms = [event.envelope.issued_at_ms for event in events]
    if times_ms != list(map(issued_at_ms, ids)):
        raise Irregular
    created_ms = _column([event.created_ms for event in events])
    uids = _column([event.uids for event in events])
    if bool(created_ms) != bool(uids):
        raise Irregular
    as_one = NodesJoined(
        events[0].envelope,
        events[0].zone,
        _column([event.names for event in events]),
        created_ms or times_ms,
        uids or ids,
        _packed([event.addresses4 for event in events], 4),
        _packed([event.addresses6 for event in events], 16),
        list(map(_labels_of, events)),
        list(range(len(events))),
    )
    return SingleJoins(ids, actors, times_ms, [intern(event.zone) for event in events], as_one, bool(uids))


def _join(value: bytes) -> NodesJoined:
    event = decode(value)
    assert isinstance(event, NodesJoined)
    return event


def _column(columns: Sequence[Sequence[T]]) -> list[T]:
    """The single item of each of these, or no item of any."""
    if len(set(map(len, columns))) > 1 or len(columns[0]) > 1:
        raise Irregular
    return [item for column in columns for item in column]


def _packed(addresses: Sequence[bytes], width: int) -> bytes:
    """One address of each of these, or no address of any."""
    if len(set(map(len, addresses))) > 1 or len(addresses[0]) not in (0, width):
        raise Irregular
    return b"".join(addresses)


def _labels_of(event: NodesJoined) -> _Labels:
    if not event.label_sets and not event.label_index:
        return {}
    if len(event.label_sets) != 1 or event.label_index != [0]:
        raise Irregular
    return intern_labels(event.label_sets[0])

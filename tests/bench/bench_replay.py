"""Folding a log of joins afresh, a thousand to a record: hash, decode, ledger, decide and evolve, in memory.

The peer stores the same nodes as a list of Avro records, which fastavro reads, and applies them one by one with the
same checks. It has no ledger and no outbox, so it does less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from eventstore.folding.state_table import StateTable
from eventstore.log import FLEET_0
from projections.field_checks import check_address4, check_labels, check_name
from projections.fleet.fold import FleetFold
from projections.fleet.membership.rows import Member
from projections.fleet.tables.zone_table import table
from projections.rules.prefixes import WIDTH4, Cover, cover4
from projections.zones.fold import ZonesFold
from projections.zones.rows import Node
from tests.bench.figures import Figure, median_seconds
from tests.bench.workload import LABELS, ZONES_0, folded, forwards, joins, name_of, records, zone_name

NODES = 200_000
PER_RECORD = 1_000
RUNS = 5

_ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "created_ms", "type": "long"},
        {"name": "uid", "type": "string"},
        {"name": "address4", "type": "long"},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}
_ROWS: Any = parse_schema({"type": "array", "items": _ROW})


def figures() -> list[Figure]:
    zone_log = records(joins(NODES, zones=20, per_record=PER_RECORD))
    state = folded(ZONES_0, ZonesFold(), zone_log).state
    fleet_log = records(forwards(state))
    listed = _listed(state.nodes.rows)

    def fold_fleet() -> None:
        fleet = folded(FLEET_0, FleetFold(1), fleet_log).state
        assert len(fleet.members.rows) == NODES
        table(fleet, zone_name(0))

    zone_s = median_seconds(lambda: folded(ZONES_0, ZonesFold(), zone_log), runs=RUNS)
    fleet_s = median_seconds(fold_fleet, runs=RUNS)
    peer_zone_s = median_seconds(lambda: _fold_zone(listed), runs=1)
    peer_fleet_s = median_seconds(lambda: _fold_fleet(listed), runs=1)
    peer = "row by row"
    return [
        Figure("replay of joins, zone fold", NODES / zone_s, "joins/s", NODES / peer_zone_s, peer, 1e6),
        Figure(
            "replay of joins, zone and fleet folds",
            NODES / (zone_s + fleet_s),
            "joins/s",
            NODES / (peer_zone_s + peer_fleet_s),
            peer,
            6e5,
        ),
    ]


def _listed(nodes: dict[str, Node]) -> list[bytes]:
    rows = [
        {
            "name": name_of(number),
            "created_ms": node.created_ms,
            "uid": node.uid,
            "address4": node.address4,
            "labels": LABELS[number % len(LABELS)],
        }
        for number, node in enumerate(nodes.values())
    ]
    return [_written(rows[start : start + PER_RECORD]) for start in range(0, len(rows), PER_RECORD)]


def _written(rows: Sequence[dict[str, Any]]) -> bytes:
    out = BytesIO()
    schemaless_writer(out, _ROWS, rows)
    return out.getvalue()


def _read(listed: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for value in listed:
        found: Any = schemaless_reader(BytesIO(value), _ROWS, None)
        yield from found


def _fold_zone(listed: Iterable[bytes]) -> None:
    nodes: StateTable[Node] = StateTable("nodes", Node)
    for offset, row in enumerate(_read(listed)):
        faults = (
            check_name("name", row["name"]),
            check_address4("address4", row["address4"]),
            check_labels("labels", row["labels"]),
        )
        if not any(faults) and row["name"] not in nodes.rows:
            node = Node("zone", row["created_ms"], row["uid"], row["address4"], b"", row["labels"], offset, 0)
            nodes.put(row["name"], node)


def _fold_fleet(listed: Iterable[bytes]) -> None:
    members: StateTable[Member] = StateTable("members", Member)
    holders: dict[int, int] = {}
    for slot, row in enumerate(_read(listed)):
        if row["name"] not in members.rows and row["address4"] not in holders:
            holders[row["address4"]] = slot
            fields = (row["created_ms"], row["uid"], row["address4"], b"", row["labels"], slot)
            members.put(row["name"], Member("zone", *fields, held=False, delayed_by=-1, last_present_ms=0))
    Cover(WIDTH4, cover4(np.fromiter(holders, np.uint32)).tolist())

"""Plans the import of an inventory file: which nodes join which zones, and which of them claim indices of which
cliques.

Inventory files rarely contain racks, addresses and cliques as the plane needs them. So an import can cut zones in file
order (files usually list rack by rack), assign addresses from a pool, and form cliques from the nodes that match. Every
column without another meaning becomes a label.

The plan is complete before anything is applied. A bad row is reported with its line, and stops the import unless bad
rows may be skipped. The same file and options give the same plan, so an interrupted import can be repeated: it keeps
the addresses that it had assigned (address_pool.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO

from commands.inventory.address_pool import AddressPool
from commands.inventory.batches import ExistingNode, NodeBatch, PlannedNode, batches
from commands.inventory.rows import MAX_FAULTS, InventoryError, LineFault, Row, bad_file, read_rows
from projections.cliques.state import DEFAULT_CAPACITY, MAX_CAPACITY
from projections.field_checks import (
    BadAddress,
    check_clique,
    check_label_key,
    check_labels,
    check_name,
    check_text,
    check_zone,
    parse_address,
    quoted,
)

__all__ = ["CliquePlan", "ImportOptions", "InventoryError", "InventoryPlan", "LineFault", "NodeBatch", "plan"]

MAX_NODES = 2_000_000
"""Maximum number of nodes per file."""

_NAME_COLUMNS = ("name", "node", "hostname", "sn")
_ZONE_COLUMNS = ("zone", "rack")
_ADDRESS_COLUMNS = ("address", "ip")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The meaning of the columns. An empty column, size 0 or an empty pool means that the option is not given."""

    name_column: str = ""
    """Default: the first of name, node, hostname and sn that the file has."""

    zone_column: str = ""
    """Default without `zone_size`: the first of zone and rack that the file has."""

    zone_size: int = 0
    """The number of nodes per zone, in file order, if no column has the zone."""

    address_column: str = ""
    """Default without `address_pool`: the first of address and ip that the file has. A value is one address, or one
    IPv4 and one IPv6 address."""

    address_pool: str = ""
    """A network, if no column has the address. Its hosts are assigned, in file order, to the nodes that have no address
    in the network yet."""

    clique_size: int = 0
    """Number of nodes per clique, in file order; also the capacity of each clique."""

    clique_when: tuple[str, str] | None = None
    """Column and value of the nodes that join cliques. The default is all nodes, if a size is given."""

    clique_domain: str = "inventory"
    """The domain of the cliques. Cliques are named clique-0000 and so on."""

    skip_bad_rows: bool = False
    """Skip bad rows instead of refusing the file."""


@dataclass(frozen=True, slots=True)
class CliquePlan:
    """One clique: its capacity, and its members as (node, address), in the order of their claims."""

    domain: str
    clique: str
    capacity: int
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InventoryPlan:
    """The plan of a file: one record per batch. `skipped` are the first of `skipped_count` bad rows."""

    zones: tuple[str, ...]
    batches: tuple[NodeBatch, ...]
    cliques: tuple[CliquePlan, ...]
    node_count: int
    skipped: tuple[LineFault, ...]
    skipped_count: int


def plan(stream: BinaryIO, options: ImportOptions, existing: Mapping[str, ExistingNode] | None = None) -> InventoryPlan:
    """Read a whole file and plan its import. `existing` are the nodes of the plane. Raises InventoryError."""
    _check_options(options)
    return _Planner(options, existing or {}).plan(stream)


class _BadRow(Exception):
    """A row that cannot be applied; the message says why."""


class _Planner:
    """Plans an import in one pass over the rows. An address of an earlier valid row is not assigned again."""

    def __init__(self, options: ImportOptions, existing: Mapping[str, ExistingNode]) -> None:
        self._options = options
        self._pool = AddressPool(options.address_pool, existing) if options.address_pool else None
        self._columns = options
        self._zones: dict[str, list[PlannedNode]] = {}
        self._lines: dict[str, int] = {}
        self._addresses: dict[int, int] = {}  # IPv6 addresses are negative, to distinguish them from IPv4
        self._cliques: list[tuple[str, str]] = []
        self._checked: set[tuple[tuple[str, str], ...]] = set()

    def plan(self, stream: BinaryIO) -> InventoryPlan:
        faults: list[LineFault] = []
        count = 0
        is_first = True
        for row in read_rows(stream):
            fault = row if isinstance(row, LineFault) else None
            if isinstance(row, Row):
                if is_first:
                    self._columns, is_first = _resolved(self._options, row), False
                fault = self._take(row)
            if fault is not None:
                count += 1
                faults += [fault] * (len(faults) < MAX_FAULTS)
        if count and not self._options.skip_bad_rows:
            raise InventoryError(tuple(faults), count)
        if not self._lines:
            raise bad_file("inventory: the file has no valid row")
        found = tuple(batch for zone, nodes in self._zones.items() for batch in batches(zone, nodes))
        return InventoryPlan(tuple(self._zones), found, self._clique_plans(), len(self._lines), tuple(faults), count)

    def _take(self, row: Row) -> LineFault | None:
        try:
            node, zone = self._node(row)
        except (_BadRow, BadAddress) as bad:
            return LineFault(row.line, str(bad))
        if len(self._lines) >= MAX_NODES:
            raise bad_file(f"inventory: more than {MAX_NODES} nodes are over the limit of one file", row.line)
        if self._pool is not None:
            node = self._pool.assign(node, self._addresses.keys(), row.line)
        self._lines[node.name] = row.line
        self._addresses.update(dict.fromkeys(filter(None, (node.address4, -node.address6)), row.line))
        self._zones.setdefault(zone, []).append(node)
        wanted = self._options.clique_when
        if wanted is None or row.values.get(wanted[0], "") == wanted[1]:
            self._cliques.append((node.name, node.address_text))
        return None

    def _node(self, row: Row) -> tuple[PlannedNode, str]:
        """Convert a row to a node and its zone, without a change of the plan. Raises _BadRow or BadAddress."""
        columns, values = self._columns, row.values
        name = values.get(columns.name_column, "")
        _require(check_name(columns.name_column, name))
        if name in self._lines:
            raise _BadRow(
                f"{columns.name_column}: {quoted(name)} must be unique, and line {self._lines[name]} has it too"
            )
        zone = self._zone(values)
        address4, address6 = self._row_addresses(values)
        for address in filter(None, (address4, -address6)):
            if address in self._addresses:
                text = quoted(values[columns.address_column])
                raise _BadRow(
                    f"{columns.address_column}: {text} must be unique, and line {self._addresses[address]} has it too"
                )
        return PlannedNode(name, address4, address6, self._labels(values)), zone

    def _zone(self, values: dict[str, str]) -> str:
        columns = self._columns
        if columns.zone_size:
            return f"rack-{len(self._lines) // columns.zone_size:04d}"
        zone = values.get(columns.zone_column, "")
        _require(check_zone(columns.zone_column, zone))
        return zone

    def _row_addresses(self, values: dict[str, str]) -> tuple[int, int]:
        """IPv4 and IPv6 address, 0 for none; both are 0 if addresses come from a pool."""
        column = self._columns.address_column
        if self._pool is not None:
            return 0, 0
        found = [parse_address(column, text) for text in re.split(r"[\s;,]+", values.get(column, ""))]
        by_family = {address.version: int(address) for address in found}
        if len(by_family) != len(found):
            raise _BadRow(f"{column}: {quoted(values[column])} must be at most one IPv4 and one IPv6 address")
        return by_family.get(4, 0), by_family.get(6, 0)

    def _labels(self, values: dict[str, str]) -> tuple[tuple[str, str], ...]:
        columns = self._columns
        other = (columns.name_column, columns.zone_column, columns.address_column)
        labels = tuple((key, value) for key, value in sorted(values.items()) if value and key not in other)
        if labels not in self._checked:
            _require(check_labels("labels", dict(labels)))
            self._checked.add(labels)
        return labels

    def _clique_plans(self) -> tuple[CliquePlan, ...]:
        options = self._options
        if not options.clique_size and options.clique_when is None:
            return ()
        size = options.clique_size or DEFAULT_CAPACITY
        if not self._cliques and options.clique_when is not None:
            column, value = options.clique_when
            raise bad_file(f"clique_when: {quoted(column)} has the value {quoted(value)} in no row of the file")
        groups = [tuple(self._cliques[start : start + size]) for start in range(0, len(self._cliques), size)]
        return tuple(
            CliquePlan(options.clique_domain, f"clique-{number:04d}", size, group)
            for number, group in enumerate(groups)
        )


def _require(fault: str | None) -> None:
    if fault is not None:
        raise _BadRow(fault)


def _check_options(options: ImportOptions) -> None:
    for one, other in (("zone_column", "zone_size"), ("address_column", "address_pool")):
        if getattr(options, one) and getattr(options, other):
            raise bad_file(f"{one}: {quoted(str(getattr(options, one)))} must not be given together with {other}")
    for field in ("name_column", "zone_column", "address_column"):
        fault = check_text(field, getattr(options, field))
        if fault is not None:
            raise bad_file(fault)
    if options.zone_size < 0:
        raise bad_file(f"zone_size: {options.zone_size} must be 1 or more")
    if not 0 <= options.clique_size <= MAX_CAPACITY:
        raise bad_file(f"clique_size: {options.clique_size} must be from 1 to {MAX_CAPACITY}")
    fault = check_clique("clique_domain", options.clique_domain)
    if fault is not None:
        raise bad_file(fault)


def _resolved(options: ImportOptions, first: Row) -> ImportOptions:
    """The options, completed with the names of the columns of the first row. They apply to all rows."""
    name = _column("name_column", options.name_column, _NAME_COLUMNS, first)
    zone = "" if options.zone_size else _column("zone_column", options.zone_column, _ZONE_COLUMNS, first)
    address = "" if options.address_pool else _column("address_column", options.address_column, _ADDRESS_COLUMNS, first)
    if options.clique_when is not None:
        _column("clique_when", options.clique_when[0], (), first)
    for column in first.values if first.is_of_table else ():
        fault = None if column in (name, zone, address) else check_label_key("column", column)
        if fault is not None:
            raise bad_file(f"{fault}, because columns become labels")
    return replace(options, name_column=name, zone_column=zone, address_column=address)


def _column(field: str, given: str, usual: tuple[str, ...], first: Row) -> str:
    """The name of the column to use. Raises InventoryError with the names of the existing columns."""
    columns = list(first.values)
    there = ", ".join(quoted(column) for column in columns[:20]) + (", ..." if len(columns) > 20 else "")
    if given:
        if first.is_of_table and given not in columns:
            raise bad_file(f"{field}: {quoted(given)} must be one of the file's columns, which are {there}")
        return given
    found = next((column for column in usual if column in columns), None)
    if found is None:
        raise bad_file(
            f"{field}: must be given, because the file has none of the default columns {', '.join(usual)}, only {there}"
        )
    return found

"""The lists that can be watched: the tables behind each, and the present item of a changed key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from commands.messages import to_message
from commands.queries.fold_reader import FoldReader
from commands.requests.validation import require_one_of
from commands.streams.change_feed import TableOf
from eventstore.log import CLIQUES, FLEET_0, INSTALLS, RESOURCES, ZONES, Partition
from projections.cliques import views as clique_views
from projections.label_selectors import matches, parse_selector
from projections.views import nodes as node_views
from projections.zones.dpus import views as dpu_views
from projections.zones.dpus.phases import PHASES
from schemas.api import dpuplane_pb2 as pb

Item: TypeAlias = tuple[Partition, str]
"""An item of a list, identified by its partition and its key."""


class WatchedList(Protocol):
    """One list as a request selects it."""

    @property
    def partitions(self) -> Sequence[Partition]:
        """The partitions that the list depends on."""
        ...

    @property
    def tables(self) -> Sequence[tuple[Partition, TableOf]]:
        """The tables whose rows are shown in the list."""
        ...

    def item_of(self, partition: Partition, key: str) -> Item:
        """The item that a changed row belongs to."""
        ...

    def change(self, item: Item, removed: Any) -> pb.Change:
        """The present state of an item. `removed` is the row of the item that was last removed, or None."""
        ...


class WatchedNodes:
    """Nodes, with their data from fleet."""

    def __init__(self, reader: FoldReader, wanted: pb.ListNodesRequest) -> None:
        self._reader = reader
        self._zone = wanted.zone
        self._selector = parse_selector("label_selector", wanted.label_selector)
        self.tables = [*_zone_tables(reader, wanted.zone, _nodes), (FLEET_0, _members)]
        self.partitions = [partition for partition, _ in self.tables]

    def item_of(self, partition: Partition, key: str) -> Item:
        return FLEET_0, key

    def change(self, item: Item, removed: Any) -> pb.Change:
        _, name = item
        fleet = self._reader.fleet
        places = [row for state in self._reader.all_zones() if (row := state.nodes.rows.get(name)) is not None]
        member = fleet.members.rows.get(name)
        is_there = places or (member is not None and member.held)
        view = node_views.find(name, places, fleet) if is_there else None
        if view is None or self._zone not in ("", view.zone) or not matches(self._selector, view.labels):
            return pb.Change(deleted=True, node=pb.Node(name=name))
        return pb.Change(node=to_message(pb.Node, view))


class WatchedDpus:
    """DPUs. The label selector is evaluated when a DPU changes, not when the labels of its zone change."""

    def __init__(self, reader: FoldReader, wanted: pb.ListDpusRequest) -> None:
        if wanted.phase:
            require_one_of("phase", wanted.phase, PHASES)
        self._reader = reader
        self._wanted = wanted
        self._selector = parse_selector("label_selector", wanted.label_selector)
        self.tables = _zone_tables(reader, wanted.zone, _dpus)
        self.partitions = [partition for partition, _ in self.tables]

    def item_of(self, partition: Partition, key: str) -> Item:
        return partition, key

    def change(self, item: Item, removed: Any) -> pb.Change:
        partition, key = item
        row = self._reader.zones(partition.number).dpus.rows.get(key)
        if row is None or not self._is_in_list(partition, key, row.zone, row.phase):
            gone = row or removed
            return pb.Change(deleted=True, dpu=pb.Dpu(dpu=key, zone=gone.zone if gone is not None else ""))
        return pb.Change(dpu=to_message(pb.Dpu, dpu_views.view(key, row)))

    def _is_in_list(self, partition: Partition, key: str, zone: str, phase: str) -> bool:
        stuck = self._reader.zones(partition.number).dpu_index.zone(zone).stuck
        return (
            self._wanted.zone in ("", zone)
            and self._wanted.phase in ("", phase)
            and (not self._wanted.stuck or key in stuck)
            and (not self._selector or matches(self._selector, self._reader.fleet.zone(zone).labels))
        )


class WatchedCliques:
    """Cliques. Each change contains the whole clique."""

    def __init__(self, reader: FoldReader, wanted: pb.ListCliquesRequest) -> None:
        self._reader = reader
        self._domain = wanted.domain
        numbers = [reader.partition_number(wanted.domain)] if wanted.domain else reader.partition_numbers
        self.partitions = [Partition(CLIQUES, number) for number in numbers]
        self.tables = [(partition, table) for partition in self.partitions for table in (_clique_members, _capacities)]

    def item_of(self, partition: Partition, key: str) -> Item:
        return partition, "/".join(key.split("/", 2)[:2])

    def change(self, item: Item, removed: Any) -> pb.Change:
        partition, key = item
        domain, clique = key.split("/")
        view = clique_views.show(self._reader.cliques(partition.number), domain, clique)
        if view is None or self._domain not in ("", domain):
            return pb.Change(deleted=True, clique=pb.Clique(domain=domain, clique=clique))
        return pb.Change(clique=to_message(pb.Clique, view))


class PositionsOnly:
    """No list, only positions: for a client that queries again when the folds have advanced."""

    tables: Sequence[tuple[Partition, TableOf]] = ()

    def __init__(self, reader: FoldReader) -> None:
        topics, numbers = (ZONES, CLIQUES, RESOURCES, INSTALLS), reader.partition_numbers
        self.partitions = [FLEET_0, *(Partition(topic, number) for topic in topics for number in numbers)]

    def item_of(self, partition: Partition, key: str) -> Item:
        raise AssertionError("no table, no item")

    def change(self, item: Item, removed: Any) -> pb.Change:
        raise AssertionError("no table, no item")


def watched_list(reader: FoldReader, request: pb.WatchRequest) -> WatchedList:
    """The list of a request. Raises PermanentError."""
    match request.WhichOneof("list"):
        case "nodes":
            return WatchedNodes(reader, request.nodes)
        case "dpus":
            return WatchedDpus(reader, request.dpus)
        case "cliques":
            return WatchedCliques(reader, request.cliques)
        case _:
            return PositionsOnly(reader)


def _zone_tables(reader: FoldReader, zone: str, table: TableOf) -> list[tuple[Partition, TableOf]]:
    numbers = [reader.partition_number(zone)] if zone else reader.partition_numbers
    return [(Partition(ZONES, number), table) for number in numbers]


def _nodes(state: Any) -> Any:
    return state.nodes


def _members(state: Any) -> Any:
    return state.members


def _dpus(state: Any) -> Any:
    return state.dpus


def _clique_members(state: Any) -> Any:
    return state.members


def _capacities(state: Any) -> Any:
    return state.capacities

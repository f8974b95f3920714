"""The Queries service. Each method waits for the caller's minimum position, reads folds, and returns the position of
the read.

There is no await between the wait and the end of a read, so an answer is consistent at one position. Long lists come in
pages. The rules of a table must have one version, so they are read at once and sent as a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import chain, islice
from typing import Any, TypeVar

from commands.messages import to_message, to_policy, to_port_ranges
from commands.queries import explain
from commands.queries.command_status import CommandStatus
from commands.queries.configurations import ConfigurationQueries
from commands.queries.fold_reader import FoldReader
from commands.queries.hosts import HostQueries
from commands.queries.networks import NetworkQueries
from commands.queries.progress import ProgressQueries
from commands.queries.resources import ResourceQueries
from commands.queries.rollouts import RolloutQueries
from commands.queries.staging import StagingQueries
from commands.queries.status import DeviceSource, StatusReporter
from commands.requests.validation import require, require_count, require_one_of
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call
from eventstore.errors import LogUnavailable, PermanentError
from eventstore.log import CLIQUES, FLEET, FLEET_0, INSTALLS, ZONES
from eventstore.reasons import Fault, Reason
from projections import field_checks
from projections.cliques import files as clique_files
from projections.cliques import views as clique_views
from projections.fleet import views as fleet_views
from projections.fleet.membership.rows import Member
from projections.fleet.tables import zone_table as tables
from projections.label_selectors import matches, parse_selector
from projections.pages import page
from projections.rules.rule import Holdings
from projections.views import nodes as node_views
from projections.views import zones as zone_views
from projections.zones.dpus import views as dpu_views
from projections.zones.dpus.phases import PHASES
from projections.zones.rows import Node
from schemas.api import dpuplane_pb2 as pb

T = TypeVar("T")

_RULES_PER_MESSAGE = 500
_DEVICES_PER_MESSAGE = 1_000
_LABELS_PER_PAGE = 20_000
"""Maximum number of labels of all nodes of a page together. Without this maximum, a page of 1,000 nodes could have six
times as many, which is too much for a message.
"""
_CLIQUES_PER_PAGE = 50
_CLIQUE_NODES_PER_PAGE = 4_096
"""Maximum number of members of all cliques of a page together, unless a single clique has more. Without this maximum, a
page of fifty of the largest cliques took most of a second.
"""


class QueriesService(
    ConfigurationQueries, HostQueries, NetworkQueries, ProgressQueries, ResourceQueries, RolloutQueries, StagingQueries
):
    """Methods of the service in snake case, called by `commands.rpc.middleware.RpcMiddleware`."""

    def __init__(
        self, reader: FoldReader, command_status: CommandStatus, status: StatusReporter, devices: DeviceSource | None
    ) -> None:
        """`devices` is None for a point in the past, because the log does not record the tables of DPUs."""
        super().__init__(reader)
        self._command_status = command_status
        self._status = status
        self._devices = devices

    # --- nodes and zones ----------------------------------------------------------------------------------------------

    async def list_nodes(self, request: pb.ListNodesRequest, call: Call) -> pb.ListNodesResponse:
        selector = parse_selector("label_selector", request.label_selector)
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET), call)
        numbers, fleet = self._numbers(request.zone), self._reader.fleet
        rows = {number: self._reader.zones(number).nodes.rows for number in numbers}
        kept = node_views.retained_nodes(fleet, request.zone, self._reader.partition_number, rows)

        def keys(number: int) -> Iterable[str]:
            there = rows[number].items()
            names = (name for name, row in there if row.zone == request.zone) if request.zone else rows[number]
            return chain(names, kept.get(number, ()))

        def row_of(number: int, name: str) -> Node | Member:
            return rows[number].get(name) or kept[number][name]

        def labels_of(number: int, name: str) -> int:
            return len(row_of(number, name).labels)

        def is_selected(number: int, name: str) -> bool:
            return matches(selector, row_of(number, name).labels)

        found = page(numbers, keys, request.page_size, request.page_token, is_selected if selector else None).within(
            _LABELS_PER_PAGE, labels_of
        )
        views = (node_views.view(name, row_of(number, name), fleet) for number, name in found.keys)
        return pb.ListNodesResponse(
            nodes=[to_message(pb.Node, view) for view in views],
            next_page_token=found.next_token,
            position=self._reader.token(ZONES, FLEET, numbers=numbers),
        )

    async def get_node(self, request: pb.GetNodeRequest, call: Call) -> pb.Node:
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET), call)
        places = (state.nodes.rows.get(request.name) for state in self._reader.all_zones())
        view = node_views.find(request.name, places, self._reader.fleet)
        if view is None:
            raise explain.unknown_node(request.name)
        return to_message(pb.Node, view, position=self._everywhere())

    async def locate_nodes(self, request: pb.LocateNodesRequest, call: Call) -> pb.LocateNodesResponse:
        require_count("names", len(request.names))
        await self._reader.wait_for_position(request.min_position, (ZONES,), call)
        zones, fleet = list(self._reader.all_zones()), self._reader.fleet
        found = ((name, node_views.zone_of_node(name, zones, fleet)) for name in request.names)
        return pb.LocateNodesResponse(zones={name: zone for name, zone in found if zone}, position=self._everywhere())

    async def list_zones(self, request: pb.ListZonesRequest, call: Call) -> pb.ListZonesResponse:
        selector = parse_selector("label_selector", request.label_selector)
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET), call)
        fleet = self._reader.fleet
        described: dict[int, set[str]] = {}
        for zone in fleet.known_zones():
            described.setdefault(self._reader.partition_number(zone), set()).add(zone)

        def keys(number: int) -> Iterable[str]:
            known = {*self._reader.zones(number).zones(), *described.get(number, ())}
            return (zone for zone in known if matches(selector, fleet.zone(zone).labels)) if selector else known

        found = page(self._reader.partition_numbers, keys, request.page_size, request.page_token)
        views = (zone_views.view(zone, self._reader.zones(number), fleet) for number, zone in found.keys)
        return pb.ListZonesResponse(
            zones=[to_message(pb.Zone, view) for view in views],
            next_page_token=found.next_token,
            position=self._everywhere(),
        )

    async def get_zone(self, request: pb.GetZoneRequest, call: Call) -> pb.Zone:
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET, INSTALLS), call)
        number = self._zone(request.zone)
        state = self._reader.zones(number)
        reported = self._reader.installs(request.zone)
        installs = zone_views.installs(request.zone, state, self._reader.fleet, reported, self._reader.generation)
        found = to_message(pb.Zone, zone_views.view(request.zone, state, self._reader.fleet))
        found.MergeFrom(to_message(pb.Zone, installs))
        frozen = zone_views.frozen(request.zone, state, self._reader.fleet, reported, self._reader.generation)
        if frozen is not None:
            found.MergeFrom(to_message(pb.Zone, frozen))
        found.position = self._reader.token(ZONES, FLEET, INSTALLS, numbers=[number])
        return found

    async def get_rules(self, request: pb.GetRulesRequest, call: Call) -> AsyncIterator[pb.Rules]:
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET), call)
        self._zone(request.zone)
        now = tables.table(self._reader.fleet, request.zone)
        spelled, position = zone_views.rules(now), self._reader.token(FLEET)
        rules = [_rule(view) for view in islice(spelled, _RULES_PER_MESSAGE)]
        while True:
            yield pb.Rules(
                zone=request.zone, version=now.version, digest=now.digest.hex(), rules=rules, position=position
            )
            await asyncio.sleep(0)
            rules = [_rule(view) for view in islice(spelled, _RULES_PER_MESSAGE)]
            if not rules:
                return

    # --- cliques ------------------------------------------------------------------------------------------------------

    async def list_cliques(self, request: pb.ListCliquesRequest, call: Call) -> pb.ListCliquesResponse:
        await self._reader.wait_for_position(request.min_position, (CLIQUES,), call)
        numbers = self._numbers_of_domain(request.domain)

        def keys(number: int) -> Iterable[str]:
            state = self._reader.cliques(number)
            return state.domains.get(request.domain, ()) if request.domain else state.cliques

        size = min(request.page_size, _CLIQUES_PER_PAGE) or _CLIQUES_PER_PAGE

        def nodes_in(number: int, key: str) -> int:
            return clique_views.nodes_in(self._reader.cliques(number), key)

        found = page(numbers, keys, size, request.page_token).within(_CLIQUE_NODES_PER_PAGE, nodes_in)
        views = (clique_views.show(self._reader.cliques(number), *key.split("/", 1)) for number, key in found.keys)
        return pb.ListCliquesResponse(
            cliques=[to_message(pb.Clique, view) for view in views if view is not None],
            next_page_token=found.next_token,
            position=self._reader.token(CLIQUES, numbers=numbers),
        )

    async def get_clique(self, request: pb.GetCliqueRequest, call: Call) -> pb.Clique:
        await self._reader.wait_for_position(request.min_position, (CLIQUES,), call)
        view, position = self._clique(request.domain, request.clique)
        return to_message(pb.Clique, view, position=position)

    async def get_clique_config(self, request: pb.GetCliqueConfigRequest, call: Call) -> pb.CliqueConfig:
        await self._reader.wait_for_position(request.min_position, (CLIQUES,), call)
        view, position = self._clique(request.domain, request.clique)
        state = self._reader.cliques(self._reader.partition_number(request.domain))
        slots = clique_files.slot_addresses(state, request.domain, request.clique)
        return pb.CliqueConfig(
            domain=request.domain,
            clique=request.clique,
            peers=clique_files.peers_file(request.domain, view.capacity),
            hosts=clique_files.hosts_mapping(request.domain, slots),
            position=position,
        )

    def _numbers_of_domain(self, domain: str) -> list[int]:
        """The partition of a known domain, or all partitions if none is named. Raises NotFound."""
        if not domain:
            return list(self._reader.partition_numbers)
        number = self._reader.partition_number(domain)
        if domain not in self._reader.cliques(number).domains:
            reason = f"domain: {field_checks.quoted(domain)} has no clique: no index was claimed, and no capacity set"
            raise NotFound(Fault(reason, Reason.CLIQUE_NOT_FOUND, domain=domain))
        return [number]

    def _clique(self, domain: str, clique: str) -> tuple[clique_views.CliqueView, str]:
        number = self._reader.partition_number(domain)
        view = clique_views.show(self._reader.cliques(number), domain, clique)
        if view is None:
            reason = (
                f"clique: {field_checks.quoted(f'{domain}/{clique}')} does not exist: no index was claimed, and no "
                "capacity set"
            )
            raise NotFound(Fault(reason, Reason.CLIQUE_NOT_FOUND, domain=domain, clique=clique))
        return view, self._reader.token(CLIQUES, numbers=[number])

    # --- DPUs ---------------------------------------------------------------------------------------------------------

    async def list_dpus(self, request: pb.ListDpusRequest, call: Call) -> pb.ListDpusResponse:
        if request.phase:
            require_one_of("phase", request.phase, PHASES)
        selector = parse_selector("label_selector", request.label_selector)
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET), call)
        numbers = self._numbers(request.zone)
        rows, fleet = {number: self._reader.zones(number).dpus.rows for number in numbers}, self._reader.fleet

        def is_wanted(zone: str) -> bool:
            return request.zone in ("", zone) and (not selector or matches(selector, fleet.zone(zone).labels))

        def keys(number: int) -> Iterable[str]:
            state = self._reader.zones(number)
            return dpu_views.named(state, is_wanted=is_wanted, phase=request.phase, stuck=request.stuck)

        found = page(numbers, keys, request.page_size, request.page_token)
        views = (dpu_views.view(name, rows[number][name]) for number, name in found.keys)
        return pb.ListDpusResponse(
            dpus=[to_message(pb.Dpu, view) for view in views],
            next_page_token=found.next_token,
            position=self._reader.token(ZONES, numbers=numbers),
        )

    async def get_dpu(self, request: pb.GetDpuRequest, call: Call) -> pb.Dpu:
        await self._reader.wait_for_position(request.min_position, (ZONES,), call)
        number = self._reader.partition_number(explain.zone_of_dpu(self._reader, request.dpu, request.zone))
        view = dpu_views.view(request.dpu, self._reader.zones(number).dpus.rows[request.dpu])
        return to_message(pb.Dpu, view, position=self._reader.token(ZONES, numbers=[number]))

    async def list_devices(self, request: pb.ListDevicesRequest, call: Call) -> AsyncIterator[pb.ListDevicesResponse]:
        if request.zones:
            require_count("zones", len(request.zones))
        for zone in request.zones:
            require(field_checks.check_zone("zones", zone))
        held = await self._held(frozenset(request.zones), call)
        devices = (
            pb.Device(zone=zone, dpu=dpu, epoch=epoch, version=version, digest=digest.hex())
            for zone, dpus in sorted(held.items())
            for dpu, (epoch, version, digest) in sorted(dpus.items())
        )
        while part := list(islice(devices, _DEVICES_PER_MESSAGE)):
            yield pb.ListDevicesResponse(devices=part)
            await asyncio.sleep(0)

    # --- policies, holds and other decisions of fleet -----------------------------------------------------------------

    async def list_policies(self, request: pb.ListPoliciesRequest, call: Call) -> pb.ListPoliciesResponse:
        await self._reader.wait_for_position(request.min_position, (FLEET,), call)
        rows, next_token = _page_of(fleet_views.policies_by_key(self._reader.fleet), request)
        return pb.ListPoliciesResponse(
            policies=map(to_policy, rows), next_page_token=next_token, position=self._reader.token(FLEET)
        )

    async def list_holds(self, request: pb.ListHoldsRequest, call: Call) -> pb.ListHoldsResponse:
        await self._reader.wait_for_position(request.min_position, (FLEET,), call)
        fleet = self._reader.fleet
        rows, next_token = _page_of(fleet_views.open_holds(fleet), request)
        return pb.ListHoldsResponse(
            holds=[to_message(pb.Hold, fleet_views.hold_view(fleet, row)) for row in rows],
            next_page_token=next_token,
            position=self._reader.token(FLEET),
        )

    async def get_hold(self, request: pb.GetHoldRequest, call: Call) -> pb.Hold:
        await self._reader.wait_for_position(request.min_position, (FLEET,), call)
        return to_message(pb.Hold, self._hold(request.hold), position=self._reader.token(FLEET))

    async def list_hold_nodes(self, request: pb.ListHoldNodesRequest, call: Call) -> pb.ListHoldNodesResponse:
        await self._reader.wait_for_position(request.min_position, (FLEET,), call)
        self._hold(request.hold)
        fleet = self._reader.fleet
        waiting = fleet.held_names.get(request.hold, {})
        found = page((FLEET_0.number,), lambda _: waiting, request.page_size, request.page_token)
        return pb.ListHoldNodesResponse(
            nodes=[pb.HoldNode(name=name, zone=fleet.members.rows[name].zone) for _, name in found.keys],
            next_page_token=found.next_token,
            position=self._reader.token(FLEET),
        )

    async def list_budgets(self, request: pb.ListBudgetsRequest, call: Call) -> pb.ListBudgetsResponse:
        await self._reader.wait_for_position(request.min_position, (FLEET,), call)
        views = {str(place): view for place, view in enumerate(fleet_views.budgets(self._reader.fleet))}
        found, next_token = _page_of(views, request)
        return pb.ListBudgetsResponse(
            budgets=[to_message(pb.Budget, view) for view in found],
            next_page_token=next_token,
            position=self._reader.token(FLEET),
        )

    async def explain_access(self, request: pb.ExplainAccessRequest, call: Call) -> pb.Explanation:
        require(field_checks.check_name("node", request.node) or field_checks.check_name("dpu", request.dpu))
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET, INSTALLS), call)
        zone = explain.zone_of_dpu(self._reader, request.dpu, request.zone)
        if self._devices is None:
            return explain.explanation(self._reader, request.node, request.dpu, zone, None, is_past=True)
        held = (await self._held(frozenset({zone}), call)).get(zone, {}).get(request.dpu)
        return explain.explanation(self._reader, request.node, request.dpu, zone, held, is_past=False)

    # --- commands and status ------------------------------------------------------------------------------------------

    async def get_command(self, request: pb.GetCommandRequest, call: Call) -> pb.CommandResult:
        await self._reader.wait_for_position(request.min_position, self._reader.deciding_topics, call)
        return self._command_status.answer(request.command_id)

    async def get_status(self, request: pb.GetStatusRequest, call: Call) -> pb.Status:
        await self._reader.wait_for_position(request.min_position, (ZONES, FLEET), call)
        status = self._status.status()
        fleet = self._reader.fleet
        status.holds = len(fleet.holds.rows)
        status.frozen.extend(fleet_views.frozen(fleet))
        status.position = self._everywhere()
        return status

    async def _held(self, zones: frozenset[str], call: Call) -> Holdings:
        """The tables of DPUs. Raises LogUnavailable if a relay does not answer in time, PermanentError for the past."""
        if self._devices is None:
            raise PermanentError("as_of: device tables are known as of now only; omit as_of")
        try:
            async with asyncio.timeout(call.timeout_s):
                return await self._devices(zones)
        except TimeoutError:
            raise LogUnavailable(f"devices: not every relay responded within {call.timeout_s:.3g} s") from None

    def _hold(self, number: int) -> fleet_views.HoldView:
        """An existing hold. Raises NotFound."""
        found = fleet_views.hold(self._reader.fleet, number)
        if found is None:
            reason = f"hold: {number} is not open and keeps no node; `dpuplane history` shows past holds"
            raise NotFound(Fault(reason, Reason.HOLD_NOT_FOUND, hold=number))
        return found

    def _zone(self, zone: str) -> int:
        """The partition of a known zone. Raises NotFound."""
        number = self._reader.partition_number(zone)
        if not zone_views.is_known(zone, self._reader.zones(number), self._reader.fleet):
            reason = f"zone: {field_checks.quoted(zone)} is not known; a zone exists from its first node or DPU on"
            raise NotFound(Fault(reason, Reason.ZONE_NOT_FOUND, zone=zone))
        return number

    def _numbers(self, zone: str) -> list[int]:
        """The partition of a known zone, or all partitions if none is named. Raises NotFound."""
        return [self._zone(zone)] if zone else list(self._reader.partition_numbers)

    def _everywhere(self) -> str:
        return self._reader.token(ZONES, FLEET, numbers=self._reader.partition_numbers)


def _page_of(rows: Mapping[str, T], request: Any) -> tuple[list[T], str]:
    """The rows of a page of fleet, in the order of their keys, and the token of the next one. Raises BadPage."""
    found = page((FLEET_0.number,), lambda _: rows, request.page_size, request.page_token)
    return [rows[key] for _, key in found.keys], found.next_token


def _rule(view: zone_views.RuleView) -> pb.Rule:
    flat = [port for pair in view.ports for port in pair]
    return pb.Rule(
        prefix=view.prefix,
        action=view.action,
        priority=view.priority,
        protocol=view.protocol,
        ports=to_port_ranges(flat),
        policy=view.policy,
    )

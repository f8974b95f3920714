"""Views of zones: counts, labels, limits, install progress of their DPUs, and their rules in order of precedence."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from itertools import chain
from typing import NamedTuple

from projections.attempt_limits import in_force
from projections.fleet.state import ANY_ZONE, FleetState
from projections.fleet.tables import zone_table as tables
from projections.fleet.tables.covers import PrefixChange
from projections.fleet.tables.zone_table import RuleTable
from projections.installs.rows import InstallsState
from projections.installs.views import zone_progress
from projections.rules.prefixes import SIZE4, SIZE6, networks
from projections.rules.rule import Rule
from projections.views.staging import lagging
from projections.zones.dpus.rollout import limits_of
from projections.zones.rows import Zone
from projections.zones.state import ZonesState

_SHOWN_VERSIONS = 5
_SHOWN_LAGGARDS = 20
_PIECE = 500


class ZoneView(NamedTuple):
    zone: str
    labels: dict[str, str]
    nodes: int
    dpus: int
    rules: int
    version: int
    digest: str
    parallel_installs: int
    unavailable_nodes: int
    frozen: bool
    agent_networks: tuple[str, ...]
    agent_label_keys: tuple[str, ...]
    transient_attempts: int
    device_attempts: int
    operator_attempts: int


class MilestoneView(NamedTuple):
    level: str
    permille: int
    latency_ms: int


class InstallView(NamedTuple):
    version: int
    dpus: int
    received: int
    applied: int
    in_hardware: int
    append_time_ms: int
    milestones: tuple[MilestoneView, ...]


class ExceptionView(NamedTuple):
    dpu: str
    version: int
    reason: str
    report_time_ms: int


class InstallsView(NamedTuple):
    installs: tuple[InstallView, ...]
    lagging: tuple[str, ...]
    exceptions: tuple[ExceptionView, ...]


class FrozenView(NamedTuple):
    """A freeze of a zone: the principal that set it, and the numbers of DPUs and of steps that wait for its end. A
    waiting DPU is not known to have applied the zone's present table."""

    freeze_time_ms: int
    frozen_by: str
    waiting_dpus: int
    waiting_start_time_ms: int
    waiting_steps: int


class RuleView(NamedTuple):
    prefix: str
    action: str
    priority: int
    protocol: str
    ports: tuple[tuple[int, int], ...]
    policy: str


def is_known(zone: str, state: ZonesState, fleet: FleetState) -> bool:
    """Whether the zone exists or existed: it had a node or a DPU, or a command set its attributes or froze it by
    name."""
    return state.existing_zone(zone) is not None or fleet.has_zone(zone)


def view(zone: str, state: ZonesState, fleet: FleetState) -> ZoneView:
    now = tables.table(fleet, zone)
    info = fleet.zone(zone)
    attempt_limits = in_force(info.attempt_limits)
    limits = limits_of(Zone(info.parallel_installs, info.unavailable_nodes))
    return ZoneView(
        zone=zone,
        labels=info.labels,
        nodes=state.node_counts.get(zone, 0),
        dpus=len(state.dpu_index.zone(zone).names),
        rules=sum(found.prefixes.size() for found in now.sets),
        version=now.version,
        digest=now.digest.hex(),
        parallel_installs=limits.parallel_installs,
        unavailable_nodes=limits.unavailable_nodes,
        frozen=fleet.is_frozen(zone),
        agent_networks=info.agent_networks,
        agent_label_keys=info.agent_label_keys,
        transient_attempts=attempt_limits.transient,
        device_attempts=attempt_limits.device,
        operator_attempts=attempt_limits.operator,
    )


def frozen(zone: str, state: ZonesState, fleet: FleetState, reported: InstallsState, epoch: int) -> FrozenView | None:
    """The work that a freeze of the zone, or of all zones, holds up; None if the zone is not frozen.

    A DPU waits if no relay has reported that it applied the zone's present table. Without any report, all DPUs wait.
    The wait begins with the earliest change that no relay has reported.
    """
    freeze = fleet.freezes.rows.get(zone) or fleet.freezes.rows.get(ANY_ZONE)
    if freeze is None:
        return None
    dpus, now = state.dpu_index.zone(zone), tables.table(fleet, zone)
    progress = zone_progress(reported, zone, 1, ordinals=dpus.names)
    newest = progress.versions[0] if progress is not None and progress.epoch == epoch and progress.versions else None
    applied = newest.applied if newest is not None and newest.version >= now.version else 0
    known = newest.version if newest is not None else 0
    waiting = len(dpus.names) - applied if now.version else 0
    since_ms = tables.earliest_since(fleet, zone, min(known, now.version - 1)) if waiting else 0
    steps = sum(name in state.dpu_index.open for name in dpus.names.values())
    return FrozenView(freeze.since_ms, freeze.actor, waiting, since_ms, steps)


def installs(zone: str, state: ZonesState, fleet: FleetState, reported: InstallsState, epoch: int) -> InstallsView:
    """Install progress of the zone's DPUs on its newest tables, and the DPUs that lag or reported an exception.

    Reports of another epoch come from before a restore and say nothing of the present tables.
    """
    names = state.dpu_index.zone(zone).names
    progress = zone_progress(reported, zone, _SHOWN_VERSIONS, ordinals=names)
    if progress is None or progress.epoch != epoch:
        return InstallsView((), (), ())
    behind = lagging(zone, names, fleet, reported)[:_SHOWN_LAGGARDS]
    return InstallsView(
        installs=tuple(
            InstallView(
                version=found.version,
                dpus=progress.dpu_count,
                received=found.received,
                applied=found.applied,
                in_hardware=found.in_hardware,
                append_time_ms=found.appended_ms,
                milestones=tuple(MilestoneView(m.level, m.permille, m.after_ms) for m in found.milestones),
            )
            for found in progress.versions
        ),
        lagging=tuple(names[ordinal] for ordinal in behind),
        exceptions=tuple(ExceptionView(e.dpu, e.version, e.reason, e.reported_ms) for e in progress.exceptions),
    )


def rules(now: RuleTable) -> Iterator[RuleView]:
    """The present rules of a table, first match first; one set's prefixes in order of their addresses."""
    contents = [(found.policy, found.rule, found.prefixes.content()) for found in now.sets]
    return chain.from_iterable(_rendered(policy, rule, content) for policy, rule, content in contents)


def _rendered(policy: str, rule: Rule, content: PrefixChange) -> Iterator[RuleView]:
    ports = tuple(zip(rule.ports[::2], rule.ports[1::2], strict=True))
    for network in chain(_networks(content.add4, SIZE4), _networks(content.add6, SIZE6)):
        yield RuleView(str(network), rule.action, rule.priority, rule.protocol, ports, policy)


def _networks(packed: bytes, size: int) -> Iterator[IPv4Network | IPv6Network]:
    """Packed prefixes of one family, unpacked in chunks, so that a reader of 200,000 of them can pause between two
    chunks."""
    piece = _PIECE * size
    for start in range(0, len(packed), piece):
        part = packed[start : start + piece]
        yield from networks(part, b"") if size == SIZE4 else networks(b"", part)

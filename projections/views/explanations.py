"""Explanation of a DPU's verdict on a node: the verdict of its zone's table, and each step from the node's join to the
DPU's hardware, up to the first step that is missing.

The data comes from the folds, and from the DPU's last report to its relay. A completed step names its time and its
record as far as these are known; a missing step names what it waits for. The verdict follows from the listed rules.
Each of them holds an address of the node: a reachable address, or an address in the node's row of its zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple

from pyroaring import BitMap

from eventstore.as_of import format_time as shown_time
from projections.field_checks import quoted
from projections.fleet.membership.address_index import Address
from projections.fleet.membership.contested import withheld_addresses
from projections.fleet.membership.rows import Member, ReachableState
from projections.fleet.state import ANY_ZONE, FleetState
from projections.fleet.tables.zone_table import RuleTable, held_since, table
from projections.fleet.views import hold_of
from projections.installs.exceptions import exception_text
from projections.installs.rows import LEVELS, UNKNOWN_MS, InstallsState
from projections.rules.policies import matches
from projections.rules.rule import Held, Rule
from projections.views.staging import stage_sentence
from projections.views.verdicts import Matching, Verdict, VerdictSummary, sentence, summary, verdicts
from projections.zones.rows import Dpu, Node
from projections.zones.state import ZonesState

_MAX_QUOTED_NAMES = 5
"""Maximum number of other nodes with the same address that a sentence names."""


class AddressView(NamedTuple):
    """A rule of the table that holds an address. `version` is the table's version since which the rule holds it; 0 if
    history does not reach back that far."""

    address: str
    prefix: str
    policy: str
    action: str
    priority: int
    protocol: str
    ports: tuple[int, ...]
    version: int


class StepView(NamedTuple):
    name: str
    reached: bool
    reach_time_ms: int
    position: str
    version: int
    note: str


class VerdictView(NamedTuple):
    """The verdict on a part of an address's traffic; see verdicts.Verdict."""

    address: str
    allowed: bool
    policy: str
    protocols: tuple[str, ...]
    ports: tuple[int, ...]


class ExplanationView(NamedTuple):
    addresses: tuple[AddressView, ...]
    steps: tuple[StepView, ...]
    missing_step: str
    reason: str
    verdicts: tuple[VerdictView, ...]
    verdict: VerdictSummary
    summary: str
    notes: tuple[str, ...]


class ExplainQuery(NamedTuple):
    """The subject of an explanation: the node's row in its zone (in this partition), the DPU, and the DPU's last
    report."""

    node_name: str
    node: Node | None
    partition: int
    dpu_name: str
    dpu: Dpu
    held: Held | None
    epoch: int
    is_past: bool = False
    """Whether the query is about the past, for which the table of the DPU is unknown."""


def explain(about: ExplainQuery, fleet: FleetState, installs: InstallsState) -> ExplanationView:
    stage = fleet.stage_of(about.dpu.zone, about.dpu_name)
    now = table(fleet, about.dpu.zone, stage)
    addresses = _addresses(about, fleet)
    by_address = {_text(address): [*_rules(fleet, about.dpu.zone, now, address, stage)] for address in addresses}
    rules = [found for listed in by_address.values() for found in listed]
    said = {
        address: verdicts([Matching(view.policy, _rule_of(view)) for view, _ in listed])
        for address, listed in by_address.items()
    }
    steps, missing, reason = list[StepView](), "", ""
    for step in _steps(about, fleet, installs, now, rules):
        steps.append(step)
        if not step.reached:
            missing, reason = step.name, step.note
            break
    return ExplanationView(
        addresses=tuple(view for view, _ in rules),
        steps=tuple(steps),
        missing_step=missing,
        reason=reason,
        verdicts=tuple(VerdictView(address, *found) for address, listed in said.items() for found in listed),
        verdict=summary(found for listed in said.values() for found in listed),
        summary=_sentence(about, fleet, said),
        notes=(
            *filter(None, [stage_sentence(about.dpu.zone, about.dpu_name, fleet)]),
            *_conflicts(about, fleet, addresses),
        ),
    )


def is_remembered(name: str, fleet: FleetState, zones: Iterable[ZonesState]) -> bool:
    """Whether a node that is in no zone is remembered: as a row of fleet, or as a tombstone."""
    return (
        name in fleet.members.rows
        or name in fleet.tombstones.rows
        or any(name in state.tombstones.rows for state in zones)
    )


def _sentence(about: ExplainQuery, fleet: FleetState, said: Mapping[str, Sequence[Verdict]]) -> str:
    """The verdicts as one sentence. The sentence names the addresses that only other nodes hold in the tables."""
    if not said and about.node is None:
        ended = fleet.tombstones.rows.get(about.node_name)
        if ended is None:
            return "denied: the node is in no zone"
        return f"denied: the node left at {shown_time(max(found.left_ms for found in ended.tombstones))}"
    own = {_text(address) for row in _effective(about, fleet) for address in (row.address4, row.address6) if address}
    others = [address for address, listed in said.items() if listed and address not in own]
    if not others or about.node is None:
        return sentence(said)
    theirs = f"{', '.join(others)} counts as an address of other nodes only"
    return f"{sentence(said)}; {theirs}"


def _effective(about: ExplainQuery, fleet: FleetState) -> list[Member | ReachableState]:
    """The node's addresses that are reachable now."""
    member = fleet.members.rows.get(about.node_name)
    return [*([member] if member is not None and member.slot >= 0 else []), *fleet.retained_states(about.node_name)]


def _steps(
    about: ExplainQuery,
    fleet: FleetState,
    installs: InstallsState,
    now: RuleTable,
    rules: Sequence[tuple[AddressView, int]],
) -> Iterator[StepView]:
    yield _stated(about, fleet)
    yield _accepted(about, fleet)
    yield _intended(about, fleet, now, rules)
    version = _needed(now, rules)
    reached = _reached(about, installs, version)
    yield _sent(about, fleet, version, any(time_ms >= 0 for time_ms in reached))
    for name, time_ms in zip(LEVELS, reached, strict=True):
        known = time_ms if 0 < time_ms < UNKNOWN_MS else 0
        note = "" if time_ms >= 0 else _waits(about, installs, version)
        yield StepView(name, time_ms >= 0, known, "", version, note)


def _stated(about: ExplainQuery, fleet: FleetState) -> StepView:
    if about.node is not None:
        where = f"zones/{about.partition}/{about.node.changed}"
        return StepView("stated", True, about.node.changed_ms, where, 0, f"its last change in zone {about.node.zone}")
    member = fleet.members.rows.get(about.node_name)
    if member is None:
        return _missing("stated", f"node: {quoted(about.node_name)} is in no zone; it never joined, or has left")
    return StepView("stated", True, 0, "", 0, f"it has left zone {member.zone}")


def _accepted(about: ExplainQuery, fleet: FleetState) -> StepView:
    """The step `accepted`: fleet has the node's state from its zone, and that state is effective."""
    member, node = fleet.members.rows.get(about.node_name), about.node
    if node is None:
        if (hold := hold_of(fleet, about.node_name)) >= 0:
            rejected = " since its leave was rejected" if str(hold) in fleet.rejected.rows else ""
            return StepView("accepted", True, 0, "", 0, f"hold {hold} keeps its addresses in the tables{rejected}")
        return _missing("accepted", "its leave is not forwarded to fleet yet")
    mark = fleet.marks.get(about.partition, 0)
    if member is None or mark <= node.changed:
        return _missing(
            "accepted", f"its change at zones/{about.partition}/{node.changed} is not forwarded to fleet yet"
        )
    if str(member.delayed_by) in fleet.rejected.rows:
        return _missing(
            "accepted", f"its newest state was rejected with hold {member.delayed_by}; its previous state counts"
        )
    if member.delayed_by >= 0:
        return _missing(
            "accepted", f"hold {member.delayed_by} withholds its newest state until two principals approve it"
        )
    if withheld := withheld_addresses(fleet, about.node_name):
        return _missing("accepted", "; ".join(withheld))
    if not (member.address4 or member.address6):
        return _missing("accepted", "the node has no address")
    return StepView("accepted", True, 0, "", 0, "fleet has the state of its zone")


def _intended(
    about: ExplainQuery, fleet: FleetState, now: RuleTable, rules: Sequence[tuple[AddressView, int]]
) -> StepView:
    if not rules:
        selected = ", ".join(found.policy for found in now.sets) or "none"
        reason = f"no policy for zone {about.dpu.zone} selects the node by its labels (policies there: {selected})"
        return _missing("intended", reason)
    first = rules[0][0]
    version, time_ms = max((view.version, time_ms) for view, time_ms in rules)
    position = f"fleet/0/{version - 1}" if version else ""
    note = f"policy {first.policy}: {first.action} {first.prefix}; the table is at version {now.version}"
    if version == 0:
        note += "; the history does not reach back to when the address was added"
    return StepView("intended", True, time_ms, position, version, note)


def _needed(now: RuleTable, rules: Sequence[tuple[AddressView, int]]) -> int:
    """The version from which the table certainly allows the node. It is the newest version if history does not reach
    back to the change that added the node.

    History starts anew after a restart. If an older version were assumed then, a DPU that lags could be reported to
    have the rule although it lacks it.
    """
    versions = [view.version for view, _ in rules]
    return max(versions) if all(versions) else now.version


def _sent(about: ExplainQuery, fleet: FleetState, version: int, received: bool) -> StepView:
    if received:
        return StepView("sent", True, 0, "", version, "")
    if about.is_past:
        return _missing("sent", _unreported(version))
    zone = about.dpu.zone
    freeze = fleet.freezes.rows.get(zone) or fleet.freezes.rows.get(ANY_ZONE)
    if freeze is not None:
        return _missing(
            "sent",
            f"zone {zone} is frozen by {freeze.actor} since {shown_time(freeze.since_ms)}: its devices are not "
            "written to",
        )
    if about.held is None:
        return _missing("sent", f"dpu {about.dpu_name!r} is not connected to any relay")
    return StepView("sent", True, 0, "", version, "its relay is sending the missing changes")


def _reached(about: ExplainQuery, installs: InstallsState, version: int) -> tuple[int, ...]:
    """Per level, the time at which the DPU reached this version or a later one: -1 if it did not, UNKNOWN_MS if
    unknown."""
    zone, ordinal = about.dpu.zone, about.dpu.ordinal
    times = [-1] * len(LEVELS)
    row = installs.zones.rows.get(zone)
    if row is not None and row.epoch == about.epoch:
        for number in installs.numbers.get(zone, ()):
            found = installs.version(zone, number)
            if number < version or found is None:
                continue
            for level, reached in enumerate(found.levels):
                time_ms = next((at for at, packed in reached if ordinal in BitMap.deserialize(packed)), -1)
                if time_ms >= 0:
                    for implied in range(level + 1):
                        times[implied] = time_ms if times[implied] < 0 else min(times[implied], time_ms)
    held = about.held
    if held is not None and held.epoch == about.epoch and held.version >= max(version, 1):
        times[:2] = [time_ms if time_ms >= 0 else UNKNOWN_MS for time_ms in times[:2]]
    return tuple(times)


def _waits(about: ExplainQuery, installs: InstallsState, version: int) -> str:
    """The reason why the DPU has not reached the version."""
    row = installs.zones.rows.get(about.dpu.zone)
    for exception in row.exceptions if row is not None else ():
        if exception.dpu == about.dpu_name:
            what = exception_text(exception.version, exception.reason)
            return f"the DPU {what} (at {shown_time(exception.reported_ms)})"
    if about.is_past:
        return _unreported(version)
    if about.held is None:
        return f"dpu {about.dpu_name!r} is not connected to any relay"
    if about.held.version >= version and about.held.epoch == about.epoch:
        return f"the DPU has applied version {about.held.version}, and has not confirmed it in hardware"
    return f"the DPU has version {about.held.version} of epoch {about.held.epoch}, and needs {version} of {about.epoch}"


def _unreported(version: int) -> str:
    return f"no relay had reported version {version} of the DPU by then; other versions that it held are not kept"


def _addresses(about: ExplainQuery, fleet: FleetState) -> list[Address]:
    """The node's reachable addresses, and the addresses in its row of its zone."""
    stated = [about.node] if about.node is not None else []
    rows: list[Member | ReachableState | Node] = [*_effective(about, fleet), *stated]
    return [address for address in dict.fromkeys(a for row in rows for a in (row.address4, row.address6)) if address]


def _conflicts(about: ExplainQuery, fleet: FleetState, addresses: Iterable[Address]) -> Iterator[str]:
    """Other nodes that hold an address of this node; the rules for those nodes apply to the address, too."""
    for address in addresses:
        names = {fleet.slot_table.names[slot] for slot in fleet.slot_table.address_index.slots_of(address)} - {
            about.node_name
        }
        if names:
            few = ", ".join(sorted(names)[:_MAX_QUOTED_NAMES])
            more = f" and {len(names) - _MAX_QUOTED_NAMES} more" if len(names) > _MAX_QUOTED_NAMES else ""
            yield f"conflict: {_text(address)} is also an address of {few}{more}, so their rules apply to it too"


def _rules(
    fleet: FleetState, zone: str, now: RuleTable, address: Address, stage: int
) -> Iterator[tuple[AddressView, int]]:
    """The rules that hold an address, in order of precedence, and the version since which each holds it."""
    labels = [
        fleet.labels.sets[fleet.slot_table.label[slot]] for slot in fleet.slot_table.address_index.slots_of(address)
    ]
    for found in now.sets:
        key = found.prefixes.prefix_of(address)
        if key is None:
            continue
        selecting = [
            name
            for name in found.policy.split(",")
            if any(matches(fleet.policy_for(name, stage).sources, holder) for holder in labels)
        ]
        network = (IPv4Network if isinstance(address, int) else IPv6Network)((key >> 8, key & 255))
        version, time_ms = held_since(fleet, zone, found.prefixes, address, stage)
        view = AddressView(_text(address), str(network), ",".join(selecting), *_spoken(found.rule), version)
        yield view, time_ms


def _spoken(rule: Rule) -> tuple[str, int, str, tuple[int, ...]]:
    return rule.action, rule.priority, rule.protocol, rule.ports


def _rule_of(view: AddressView) -> Rule:
    return Rule(view.priority, view.action, view.protocol, view.ports)


def _text(address: Address) -> str:
    return str(IPv4Address(address) if isinstance(address, int) else IPv6Address(address))


def _missing(name: str, reason: str) -> StepView:
    return StepView(name, False, 0, "", 0, reason)

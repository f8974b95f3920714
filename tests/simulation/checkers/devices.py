"""Tables on devices, compared with those of the log: the right table, not before it is in the log, and safe steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from eventstore.log import FLEET_0
from projections.fleet.tables import zone_table as tables
from projections.rules.device_table import unpack
from projections.rules.policies import Policy
from projections.rules.prefixes import networks
from projections.rules.rule import Rule
from tests.simulation.checkers import verdicts
from tests.simulation.checkers.evidence import Evidence, Freeze
from tests.simulation.history import FinalTable, FrameStarted, TableInstalled
from tests.support.fleet import expected_table

Found = Iterator[str]

IN_FLIGHT_S = 15.0
"""How long after the end of the last relay a frame in flight may still arrive at a slow device."""


def check_tables(run: Evidence) -> Found:
    """I8: a device's table is that of its zone at its version, and that version was in the log before the device got
    it.
    """
    for entry in run.history.of(TableInstalled):
        is_canary = (entry.version, entry.digest) in run.canaries[entry.zone]
        if entry.version and run.tables[entry.zone].get(entry.version) != entry.digest and not is_canary:
            yield f"{entry.device} had version {entry.version} with a digest that its zone never had"
        if entry.version > run.end_at(FLEET_0, entry.at_s):
            yield f"{entry.device} had version {entry.version} at {entry.at_s:.3f} s, before it was in the log"


def check_equality(run: Evidence) -> Found:
    """I8, at rest: every registered device holds exactly the rules of its zone's table, by an independent oracle."""
    registered = {name for state in run.zone_states for name in state.dpus.rows}
    lists = [(zone, stage) for zone in run.zones for stage in run.fleet.stages_of(zone)]
    for zone, stage in lists:
        table = tables.snapshot(run.fleet, zone, stage)
        expected = {rule: set(found) for rule, found in expected_table(run.fleet, zone, _policies(run, stage)).items()}
        if {step.rule: set(networks(step.add4, step.add6)) for step in table.steps} != expected:
            yield f"the table of {zone} differs from the one computed from policies and members"
        for dump in run.history.of(FinalTable):
            if dump.zone != zone or dump.device not in registered or not table.to_version:
                continue
            if run.fleet.stage_of(zone, dump.device) != stage:
                continue
            if (dump.version, dump.digest) != (table.to_version, table.digest):
                has = f"version {dump.version}, digest {dump.digest.hex()[:8]}"
                yield f"{dump.device} has {has}, and its zone version {table.to_version}, {table.digest.hex()[:8]}"
            elif dump.rules is not None and {r: set(networks(p4, p6)) for r, p4, p6 in dump.rules} != expected:
                yield f"{dump.device} has rules that do not match its digest"


def _policies(run: Evidence, stage: int) -> list[Policy]:
    """The policies of the DPUs of a stage."""
    canary = run.fleet.staged.canary if run.fleet.staged is not None and stage else None
    found = run.fleet.policies.rows.values()
    if canary is None:
        return [*found]
    others = [policy for policy in found if policy.name != canary.name]
    return others if canary.policy is None else [*others, canary.policy]


def check_device_versions(run: Evidence) -> Found:
    """I7: within a boot no device goes back to an older (epoch, version)."""
    last: dict[str, TableInstalled] = {}
    for entry in run.history.of(TableInstalled):
        before = last.get(entry.device)
        if before and before.boot == entry.boot and (entry.epoch, entry.version) < (before.epoch, before.version):
            yield f"{entry.device} went back from {before.version} to {entry.version} at {entry.at_s:.3f} s"
        last[entry.device] = entry


def check_freezes(run: Evidence) -> Found:
    """I13: a change that was made while a zone was frozen reaches its devices only after the thaw."""
    by_zone: dict[str, list[Freeze]] = defaultdict(list)
    for freeze in run.freezes:
        by_zone[freeze.zone].append(freeze)
    for entry in run.history.of(TableInstalled):
        for freeze in by_zone[entry.zone]:
            if freeze.offset < entry.version - 1 < freeze.thaw_offset and entry.at_s < freeze.thaw_s:
                when = f"at {entry.at_s:.3f} s, in the freeze since {freeze.offset}"
                yield f"{entry.device} got version {entry.version} {when}"


def check_without_relay(run: Evidence) -> Found:
    """I14: while no relay runs, no device changes its table except by a reboot.

    An agent that restarts reports its persisted table again, which changes nothing.
    """
    gaps = list(run.gaps_without("relay"))
    last: dict[str, TableInstalled] = {}
    for entry in run.history.of(TableInstalled):
        before = last.get(entry.device)
        last[entry.device] = entry
        rebooted = entry.boot != (before.boot if before else 0)
        is_known = before is not None and _table(before) == _table(entry)
        if rebooted or is_known:
            continue
        if any(from_s + IN_FLIGHT_S < entry.at_s < to_s for from_s, to_s in gaps):
            yield f"{entry.device} changed to version {entry.version} at {entry.at_s:.3f} s, while no relay ran"


def _table(seen: TableInstalled) -> tuple[int, int, bytes]:
    return seen.epoch, seen.version, seen.digest


def check_safe_order(run: Evidence) -> Found:
    """I21: between one table and the next no packet gets a verdict other than that of the old or the new table."""
    fault_of_frame: dict[tuple[object, ...], str] = {}
    for started in run.history.of(FrameStarted):
        frame = started.before, started.steps
        if frame not in fault_of_frame:  # the same frame goes to many devices
            before: dict[Rule, frozenset[bytes]] = {rule: unpack(p4, p6) for rule, p4, p6 in started.before}
            fault_of_frame[frame] = verdicts.unsafe(before, started.steps)
        if fault_of_frame[frame]:
            yield f"{started.device} at {started.at_s:.3f} s: {fault_of_frame[frame]}"

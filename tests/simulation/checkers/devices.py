"""Tables on devices, compared with those of the log: never another table, never too early, never unsafe on the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from eventstore.log import FLEET_0
from projections.fleet.tables import zone_table as tables
from projections.rules.device_table import unpack
from projections.rules.prefixes import networks
from projections.rules.rule import Rule
from tests.simulation.checkers import verdicts
from tests.simulation.checkers.evidence import Evidence, Freeze
from tests.simulation.history import FinalTable, FrameStarted, TableInstalled
from tests.support.fleet import expected_table

Found = Iterator[str]

IN_FLIGHT_S = 15.0
"""What was sent before the last relay died may still arrive, and a slow device take it, for so long."""


def check_tables(run: Evidence) -> Found:
    """I8: a device's table is that of its zone at that version, and was in the log when the device got it."""
    for now in run.history.of(TableInstalled):
        if now.version and run.tables[now.zone].get(now.version) != now.digest:
            yield f"{now.device} had version {now.version} with a digest that its zone never had"
        if now.version > run.end_at(FLEET_0, now.at_s):
            yield f"{now.device} had version {now.version} at {now.at_s:.3f} s, before it was in the log"


def check_equality(run: Evidence) -> Found:
    """I8, at rest: every registered device holds exactly the rules of its zone's table, by an independent oracle."""
    registered = {name for state in run.zone_states for name in state.dpus.rows}
    for zone in run.zones:
        table = tables.snapshot(run.fleet, zone)
        expected = {rule: set(found) for rule, found in expected_table(run.fleet, zone).items()}
        if {step.rule: set(networks(step.add4, step.add6)) for step in table.steps} != expected:
            yield f"the table of {zone} is not what its policies say of the members"
        for dump in run.history.of(FinalTable):
            if dump.zone != zone or dump.device not in registered or not table.to_version:
                continue
            if (dump.version, dump.digest) != (table.to_version, table.digest):
                has = f"version {dump.version}, digest {dump.digest.hex()[:8]}"
                yield f"{dump.device} has {has}, and its zone version {table.to_version}, {table.digest.hex()[:8]}"
            elif dump.rules is not None and {r: set(networks(p4, p6)) for r, p4, p6 in dump.rules} != expected:
                yield f"{dump.device} has other rules than its digest says"


def check_forward(run: Evidence) -> Found:
    """I7: within a boot no device goes back to an older (epoch, version)."""
    last: dict[str, TableInstalled] = {}
    for now in run.history.of(TableInstalled):
        before = last.get(now.device)
        if before and before.boot == now.boot and (now.epoch, now.version) < (before.epoch, before.version):
            yield f"{now.device} went back from {before.version} to {now.version} at {now.at_s:.3f} s"
        last[now.device] = now


def check_freezes(run: Evidence) -> Found:
    """I13: a change made while a zone was frozen reaches its devices after the thaw, not before."""
    by_zone: dict[str, list[Freeze]] = defaultdict(list)
    for freeze in run.freezes:
        by_zone[freeze.zone].append(freeze)
    for now in run.history.of(TableInstalled):
        for freeze in by_zone[now.zone]:
            if freeze.offset < now.version - 1 < freeze.thaw_offset and now.at_s < freeze.thaw_s:
                yield f"{now.device} got version {now.version} at {now.at_s:.3f} s, frozen since {freeze.offset}"


def check_static(run: Evidence) -> Found:
    """I14: while no relay runs, no device changes its table, except by its own reboot.

    An agent that restarts reports its persisted table again, which changes nothing.
    """
    dark = list(run.without("relay"))
    last: dict[str, TableInstalled] = {}
    for now in run.history.of(TableInstalled):
        before = last.get(now.device)
        last[now.device] = now
        rebooted = now.boot != (before.boot if before else 0)
        is_known = before is not None and _table(before) == _table(now)
        if rebooted or is_known:
            continue
        if any(from_s + IN_FLIGHT_S < now.at_s < to_s for from_s, to_s in dark):
            yield f"{now.device} came to have version {now.version} at {now.at_s:.3f} s, while no relay ran"


def _table(seen: TableInstalled) -> tuple[int, int, bytes]:
    return seen.epoch, seen.version, seen.digest


def check_safe_order(run: Evidence) -> Found:
    """I21: between one table and the next no packet gets a verdict other than that of the old or the new table."""
    told: dict[tuple[object, ...], str] = {}
    for framed in run.history.of(FrameStarted):
        frame = framed.before, framed.steps
        if frame not in told:  # one frame goes to many devices
            before: dict[Rule, frozenset[bytes]] = {rule: unpack(p4, p6) for rule, p4, p6 in framed.before}
            told[frame] = verdicts.unsafe(before, framed.steps)
        if told[frame]:
            yield f"{framed.device} at {framed.at_s:.3f} s: {told[frame]}"

"""The results of a batch of runs as text: amount simulated, faults injected, and speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.simulation.device_nemesis import COUNTED
from tests.simulation.plan import Plan
from tests.simulation.run import Result

MUST_HAPPEN = (
    "crash",
    "agent crash",
    "unknown",
    "refused",
    "waiting",
    "held",
    "older state",
    "lost state",
    "isolation",
    "clock jump",
    "broker clock jump",
    "full disk",
    "device reboots",
    "steps started on devices",
    "duplicated records",
    "records that landed late",
    "restamped records",
    "status written",
    "rows written",
    "rows written by another",
)
"""The events that a batch of runs must have had. A batch without one of them is too small to prove anything."""

FAULTS = (
    "crash",
    "agent crash",
    "older state",
    "lost state",
    "full disk",
    "isolation",
    "lost answers",
    "broken link",
    "silent link",
    "clock jump",
    "broker clock jump",
    "device reboots",
    "duplicated records",
    "lost answers to appends",
    "records that landed late",
    "appends that never landed",
    "restamped records",
    "slow API server",
    "API server away",
    "stalled watches",
    "cut watches",
    "expired watches",
    "repeated events",
    "throttled requests",
    "failed requests",
    "lost commits",
    "conflicts",
    "hidden Nodes",
    "restored API server",
    "rows deleted",
    "switched mode",
    "lost network document",
    "heartbeats stopped",
    "control plane NotReady",
    "Service of a control plane deleted",
    *COUNTED,
)
"""The counted kinds that are faults."""


def summary(results: Sequence[Result], real_s: float) -> str:
    """The totals of all runs."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    hours, cpu_s = sum(result.virtual_s for result in results) / 3600, sum(result.cpu_s for result in results)
    faults = [f"{counts[what]} {what}" for what in FAULTS]
    others = [f"{count} {what}" for what, count in counts.most_common() if what not in FAULTS and what != "invoke"]
    commands = counts["invoke"]
    failed = [str(result.seed) for result in results if result.faults]
    invalid_count = sum(bool(result.invalid) and not result.faults for result in results)
    return "\n".join(
        (
            f"{len(results)} seeds, {len(failed)} failed{': ' if failed else ''}{' '.join(failed)}"
            f"{f'; {invalid_count} prove nothing' if invalid_count else ''}",
            f"{commands} simulated commands, {commands / cpu_s:.0f} per second and core",
            f"{hours:.2f} simulated hours, {hours / real_s * 60:.2f} per minute, "
            f"{hours * 3600 / cpu_s:.0f} times real time per core",
            f"faults: {', '.join(faults)}",
            f"besides: {', '.join(others)}",
        )
    )


def figures(plan: Plan, result: Result) -> str:
    """The speed of the standard fleet, together with its load."""
    commands, virtual_s, cpu_s = result.counts["invoke"], result.virtual_s, result.cpu_s
    return (
        f"standard fleet of {len(plan.zones)} zones, {len(plan.processes) - 1} of every role, "
        f"{commands / virtual_s:.2f} commands per simulated second, verdict included: "
        f"{virtual_s / cpu_s:.0f} times real time, {commands / cpu_s:.0f} commands per second and core"
        f"{', FAILED' if result.faults else ''}"
    )

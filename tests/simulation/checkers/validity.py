"""The validity of a run: a run in which no fault took effect or no command succeeded proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import Answered, AttemptFailed, FaultInjected, History, Invoked

DEFINITE_SHARE = 0.95
"""The minimum share of definite answers to commands sent in fault-free time. A certain failure is a definite answer."""

AFTERMATH_S = 10.0


def invalid(history: History) -> Iterator[str]:
    """The reasons why a run proves nothing."""
    faults = history.of(FaultInjected)
    if not faults:
        yield "no fault took effect"
    answered = {found.command_id for found in history.of(Answered)}
    if not answered:
        yield "no command was answered"
    sent: dict[str, float] = {}
    for invoked in history.of(Invoked):
        sent.setdefault(invoked.command_id, invoked.at_s)
    fault_free = [
        command_id
        for command_id, at_s in sent.items()
        if not any(not fault.is_outside and fault.from_s <= at_s <= fault.to_s + AFTERMATH_S for fault in faults)
    ]
    known = answered | {found.command_id for found in history.of(AttemptFailed)}
    definite = sum(command_id in known for command_id in fault_free)
    if fault_free and definite < DEFINITE_SHARE * len(fault_free):
        yield f"of {len(fault_free)} commands sent in fault-free time, {definite} got a definite answer"

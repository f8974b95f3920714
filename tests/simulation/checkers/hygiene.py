"""Validity of a run: a run without faults, or in which nothing worked, is invalid rather than green."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import Answered, AttemptFailed, FaultInjected, History, Invoked

DEFINITE_SHARE = 0.95
"""Of commands that were sent while nothing went wrong, so many must have got a definite answer; a certain no is one."""

AFTERMATH_S = 10.0


def invalid(history: History) -> Iterator[str]:
    """The reasons why a run proves nothing."""
    struck = history.of(FaultInjected)
    if not struck:
        yield "no fault hit anything"
    told = {found.command_id for found in history.of(Answered)}
    if not told:
        yield "no command was answered"
    sent: dict[str, float] = {}
    for invoked in history.of(Invoked):
        sent.setdefault(invoked.command_id, invoked.at_s)
    calm = [
        command_id
        for command_id, at_s in sent.items()
        if not any(one.from_s <= at_s <= one.to_s + AFTERMATH_S for one in struck)
    ]
    known = told | {found.command_id for found in history.of(AttemptFailed)}
    definite = sum(command_id in known for command_id in calm)
    if calm and definite < DEFINITE_SHARE * len(calm):
        yield f"of {len(calm)} commands that were sent while nothing went wrong, {definite} were answered"

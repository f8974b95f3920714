"""A condition: whether an aspect of an object holds, why not, and which objects are to blame.

Reasons are DPF's: Success, Pending (not there yet), Error (something must be changed) and AwaitingDeletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from projections.resources.blame import Blame

Reason = Literal["Success", "Pending", "Error", "AwaitingDeletion"]

READY = "Ready"
MESSAGES_MAX = 3
"""Maximum number of objects that a message names; it counts the others."""


class Condition(NamedTuple):
    """One aspect of an object. `blames` is empty if it holds."""

    type: str
    reason: Reason
    message: str = ""
    blames: tuple[Blame, ...] = ()

    @property
    def holds(self) -> bool:
        return self.reason == "Success"

    @property
    def is_unknown(self) -> bool:
        """Whether it does not hold only because nothing has been reported yet."""
        return not self.holds and bool(self.blames) and all(blame.is_unknown for blame in self.blames)

    @property
    def status(self) -> Literal["True", "False", "Unknown"]:
        if self.is_unknown:
            return "Unknown"
        return "True" if self.holds else "False"


def condition(aspect: str, blames: Iterable[Blame], reason: Reason = "Pending") -> Condition:
    """The condition that holds without blames, and has this reason otherwise."""
    found = tuple(dict.fromkeys(blames))
    return Condition(aspect, reason, sentences(found), found) if found else Condition(aspect, "Success")


def sentences(blames: Sequence[Blame]) -> str:
    """The messages of the first blames, and the number of the others."""
    text = "; ".join(blame.message for blame in blames[:MESSAGES_MAX])
    more = len(blames) - MESSAGES_MAX
    return f"{text}; and {more} more" if more > 0 else text


def with_ready(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """These conditions after `Ready`, which holds if all of them do."""
    unmet = [each for each in conditions if not each.holds]
    if not unmet:
        return (Condition(READY, "Success"), *conditions)
    blames = tuple(dict.fromkeys(blame for each in unmet for blame in each.blames))
    names = ", ".join(each.type for each in unmet)
    message = f"The following conditions are not ready: {names}. {sentences(blames)}"
    reason: Reason = next((each.reason for each in unmet if each.reason != "Pending"), "Pending")
    return (Condition(READY, reason, message, blames), *conditions)

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
BLAMES_MAX = 20
"""Maximum number of blames of a condition that may concern all DPUs of a fleet; it counts the others."""


class Condition(NamedTuple):
    """One aspect of an object. `blames` is empty if it holds. `more` is the number of further blames, of which none is
    known against an object unless one of `blames` is. `names_fault` is given for an aspect whose name is that of a
    fault: its status is True while the object has the fault."""

    type: str
    reason: Reason
    message: str = ""
    blames: tuple[Blame, ...] = ()
    more: int = 0
    names_fault: bool = False

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
        return "True" if self.holds != self.names_fault else "False"


def condition(aspect: str, blames: Iterable[Blame], reason: Reason = "Pending", more: int = 0) -> Condition:
    """The condition that holds without blames, and has this reason otherwise."""
    found = tuple(dict.fromkeys(blames))
    return Condition(aspect, reason, sentences(found, more), found, more) if found else Condition(aspect, "Success")


def sentences(blames: Sequence[Blame], more: int = 0) -> str:
    """The messages of the first blames, and the number of the others."""
    text = "; ".join(blame.message for blame in blames[:MESSAGES_MAX])
    more += max(0, len(blames) - MESSAGES_MAX)
    return f"{text}; and {more} more" if more > 0 else text


def with_ready(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """These conditions after `Ready`, which holds if all of them do."""
    unmet = [each for each in conditions if not each.holds]
    if not unmet:
        return (Condition(READY, "Success"), *conditions)
    blames = tuple(dict.fromkeys(blame for each in unmet for blame in each.blames))
    more = sum(each.more for each in unmet)
    names = ", ".join(each.type for each in unmet)
    message = f"The following conditions are not ready: {names}. {sentences(blames, more)}"
    reason: Reason = next((each.reason for each in unmet if each.reason != "Pending"), "Pending")
    return (Condition(READY, reason, message, blames, more), *conditions)

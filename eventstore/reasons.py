"""Why a command or a call is refused, for programs: a code and named values beside the sentence for people.

Codes are part of the API: a code keeps its meaning for ever, and a new meaning gets a new code. Sentences may change.
All codes are in this module, and the reference lists them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

_FIELD = re.compile(r"([a-z][\w.-]*)(?:\[[^\]]*\])?(?: key)?: ")
_LONGEST = 253
"""Maximum number of characters of a value; the rest is cut off. Fold states store refusals, and the values come from
records of any length.
"""


class Reason(StrEnum):
    """A code, and its meaning in one sentence. The name of each code is its value."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Reason:
        self = str.__new__(cls, code)
        self._value_ = code
        self.meaning = meaning
        return self

    INVALID_FIELD = "INVALID_FIELD", "The field `field` of the request breaks a rule that needs no state."
    LIMIT_REACHED = "LIMIT_REACHED", "The number of these objects has reached its limit, `limit`."

    COMMAND_ID_IN_USE = "COMMAND_ID_IN_USE", "The command id belongs to another command."
    COMMAND_ID_EXPIRED = "COMMAND_ID_EXPIRED", "The id was used, and the outcome of its command is no longer kept."
    COMMAND_TOO_LATE = "COMMAND_TOO_LATE", "The command did not reach the log within two minutes of its issue."
    COMMAND_FROM_FUTURE = "COMMAND_FROM_FUTURE", "The time in the command id is ahead of the clock that judged it."

    NODE_NOT_FOUND = "NODE_NOT_FOUND", "No node has this name, in the named zone or in any."
    NODE_IN_OTHER_ZONE = "NODE_IN_OTHER_ZONE", "The node is in `zone`, and a node agent cannot move it."
    NODE_CHANGED_LATER = "NODE_CHANGED_LATER", "The node changed after the snapshot that lacks it."
    INCARNATION_OUTDATED = (
        "INCARNATION_OUTDATED",
        "The node has a newer incarnation, or has released the index of this one.",
    )
    INCARNATION_DIFFERS = "INCARNATION_DIFFERS", "The node has another incarnation than the request names."
    SNAPSHOT_OUTDATED = "SNAPSHOT_OUTDATED", "The snapshot is not the last one of its source."
    NOT_PERMITTED_TO_AGENT = "NOT_PERMITTED_TO_AGENT", "Only an operator may set this label or address, or remove it."
    ADDRESS_IN_USE = "ADDRESS_IN_USE", "Another node has an address that the node's agent stated."

    ZONE_NOT_FOUND = (
        "ZONE_NOT_FOUND",
        "The zone does not exist: it never had a node or a DPU.",
    )
    ZONE_NOT_EMPTY = "ZONE_NOT_EMPTY", "The zone has `nodes` nodes and `dpus` DPUs."
    ZONE_NOT_FROZEN = "ZONE_NOT_FROZEN", "There is no freeze of the zone, or of all zones, to end."
    ALL_ZONES_FROZEN = "ALL_ZONES_FROZEN", "The zone is frozen by the freeze of all zones, which ends as a whole."

    DPU_NOT_FOUND = "DPU_NOT_FOUND", "No DPU has this name, in the named zone or in any."
    DPU_AMBIGUOUS = "DPU_AMBIGUOUS", "Several zones have a DPU of this name."
    DPU_IN_OTHER_ZONE = "DPU_IN_OTHER_ZONE", "A DPU of this name is registered in `zone`."
    DPU_WANTED = "DPU_WANTED", "The object `object` wants a DPU of this name, and decides about it."
    DPU_REGISTERED = "DPU_REGISTERED", "An operator registered a DPU of this name, and decides about it."
    DPU_PAUSED = "DPU_PAUSED", "The DPU is paused."
    NODE_OUT_OF_SERVICE = "NODE_OUT_OF_SERVICE", "The DPU cannot get another node while its own is out of service."
    PHASE_MISMATCH = "PHASE_MISMATCH", "The request or step does not apply in the present phase, `phase`."
    ATTEMPT_MISMATCH = "ATTEMPT_MISMATCH", "The step event is not about the running or next attempt."
    ATTEMPT_TOO_EARLY = "ATTEMPT_TOO_EARLY", "The time of the next attempt, or the deadline, is not reached."
    IMAGE_MISSING = "IMAGE_MISSING", "The DPU has no image yet, so the request must name one."

    DPU_UP_TO_DATE = "DPU_UP_TO_DATE", "The DPU is released to the image that is wanted for it already."
    CLUSTER_UNAVAILABLE = "CLUSTER_UNAVAILABLE", "The DPU cluster is not ready, or has all the DPUs that it takes."

    CLIQUE_NOT_FOUND = "CLIQUE_NOT_FOUND", "The domain or clique has no claim, and no capacity was set."
    CLAIM_NOT_FOUND = "CLAIM_NOT_FOUND", "The node has neither an index nor a queue place in the clique."
    CLAIM_IN_OTHER_CLIQUE = "CLAIM_IN_OTHER_CLIQUE", "This incarnation has its claim in another clique of the domain."
    CLAIM_WAITING = "CLAIM_WAITING", "The node waits for an index, so its daemon cannot be ready."
    INDEX_OUT_OF_RANGE = "INDEX_OUT_OF_RANGE", "The clique has no such index: its capacity is `capacity`."
    INDEX_IN_USE = "INDEX_IN_USE", "The requested index is held by `node`."
    INDEX_FIXED = "INDEX_FIXED", "The index of a running incarnation does not change."
    CAPACITY_TOO_SMALL = "CAPACITY_TOO_SMALL", "An index above the capacity is held by `node`."
    REPORT_OUTDATED = "REPORT_OUTDATED", "A newer report of the same kind was folded already."
    SESSION_EXPIRED = "SESSION_EXPIRED", "The session of the daemon has expired, so it cannot be ready."
    SESSION_DIFFERS = "SESSION_DIFFERS", "Another session than the named one is open."

    POLICY_NOT_FOUND = "POLICY_NOT_FOUND", "No policy has this name."
    POLICY_STAGED = "POLICY_STAGED", "A change of the policy `policy` is staged, and must end first."
    POLICY_NOT_STAGED = "POLICY_NOT_STAGED", "The policy `policy` has no staged change."
    NETWORKS_NOT_STAGED = "NETWORKS_NOT_STAGED", "The networks of the source `source` have no staged change."
    HOLD_NOT_FOUND = "HOLD_NOT_FOUND", "The hold is not open."
    HOLD_REJECTED = "HOLD_REJECTED", "The hold was rejected by `rejected_by`."
    HOLD_SUPERSEDED = "HOLD_SUPERSEDED", "A later command stated the same policy, labels or budget."
    HOLD_CHANGED = "HOLD_CHANGED", "The hash is not the present one of the hold: look at it again."
    APPROVER_IS_REQUESTER = "APPROVER_IS_REQUESTER", "The principal requested the change, so others must approve it."

    RESOURCE_NOT_FOUND = "RESOURCE_NOT_FOUND", "No object of this kind and name exists."
    RESOURCE_CHANGED = "RESOURCE_CHANGED", "The object has `generation`, and the request was made from another one."
    RESOURCE_DELETED = "RESOURCE_DELETED", "The object is being deleted, and cannot change before it is gone."
    RESOURCE_UPDATE_INVALID = "RESOURCE_UPDATE_INVALID", "The present object does not allow this change of its fields."

    OUT_OF_ORDER = "OUT_OF_ORDER", "The plane's own record was folded already, or an earlier one was not."

    AWAITING_LOG = "AWAITING_LOG", "Unknown: the log or a fold has not answered in time; ask again."
    OUTCOME_FORGOTTEN = "OUTCOME_FORGOTTEN", "Unknown: the plane no longer keeps the outcome; the log has its events."

    DECODING_FAILED = "DECODING_FAILED", "The bytes of the request are not the method's message."
    UNAUTHENTICATED = "UNAUTHENTICATED", "The caller has no valid certificate."
    PERMISSION_DENIED = "PERMISSION_DENIED", "The principal may not call the method, or not about this node."
    OVER_LIMIT = "OVER_LIMIT", "The principal, or the server, is at its limit of calls or streams."
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED", "There was no response within the time limit of the call."
    UNAVAILABLE = "UNAVAILABLE", "The log, a relay or the server does not respond now."
    STILL_FOLDING = "STILL_FOLDING", "The point of the past is being folded."
    POSITION_EXPIRED = "POSITION_EXPIRED", "The stream cannot begin there: list again, and continue from the list."
    VERSION_NOT_SUPPORTED = (
        "VERSION_NOT_SUPPORTED",
        "A live replica lacks the fold version, or one is halted.",
    )


CLOCK_REASONS = (Reason.COMMAND_ID_EXPIRED, Reason.COMMAND_TOO_LATE, Reason.COMMAND_FROM_FUTURE)
"""Refusals that say nothing about the content of a command: it may be issued again, with a new id."""


class Fault(str):
    """One sentence about a fault, with its code and named values. The code is INVALID_FIELD by default. The sentence of
    such a fault begins with the name of the field and a colon.
    """

    __slots__ = ("fields", "reason")

    def __new__(cls, sentence: str, reason: Reason = Reason.INVALID_FIELD, /, **fields: object) -> Fault:
        self = str.__new__(cls, sentence)
        self.reason = reason
        self.fields = {**_named_field(sentence), **{name: str(value)[:_LONGEST] for name, value in fields.items()}}
        return self

    reason: Reason
    fields: dict[str, str]


def as_fault(sentence: str) -> Fault:
    """The sentence as a Fault. A plain string becomes a Fault about an invalid field."""
    return sentence if isinstance(sentence, Fault) else Fault(sentence)


def joined(faults: Sequence[Fault]) -> Fault:
    """Several faults as one: all sentences, with the code and the values of the first."""
    return Fault("; ".join(faults), faults[0].reason, **faults[0].fields)


def _named_field(sentence: str) -> dict[str, str]:
    found = _FIELD.match(sentence)
    return {"field": found[1]} if found else {}

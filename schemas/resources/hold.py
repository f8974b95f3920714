"""Hold: a change over its budget, which waits until two people approve it or one rejects it.

The plane makes the objects and writes their status. A person adds one entry to `spec.verdicts`, under their user name.
A ValidatingAdmissionPolicy (admission.py) compares that name with the user of the request, so the API server itself
vouches for it. The manager in `metadata.managedFields` could not: clients choose its name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.kinds import Column, Kind
from schemas.resources.model import Conditions, Count, LogPosition, Message, Model, Text, validated

MAX_VERDICTS = 16
MAX_NODES = 20

Hash = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[0-9a-f]+$")]


class HoldVerdict(Model):
    """What one person decided about the change with this hash."""

    user: Annotated[str, Field(min_length=1, max_length=253)]
    """The user name of the person, as `kubectl auth whoami` prints it. The API server refuses any other."""
    verdict: Literal["Approve", "Reject"]
    hash: Hash
    """The hash of the change that the person saw: `status.hash`. A hold whose change grew has another one."""


class HoldSpec(Model):
    """The decisions of people about this hold."""

    verdicts: Annotated[
        list[HoldVerdict],
        Field(
            max_length=MAX_VERDICTS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["user"]},
        ),
    ] = []


class HoldStatus(Model):
    """The change that waits, and who approved it."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!has(oldSelf.logPosition) || (has(self.logPosition) && (self.logPosition.generation >"
                " oldSelf.logPosition.generation || (self.logPosition.generation == oldSelf.logPosition.generation"
                " && self.logPosition.fleet >= oldSelf.logPosition.fleet)))",
                "logPosition must not go back",
            )
        )
    )

    observed_generation: Count = 0
    log_position: LogPosition | None = None
    hold: Count = 0
    """The number of the hold, as in `dpuplane holds`."""
    state: Literal["Open", "Approved", "Rejected", "Ended"] = "Open"
    budget: Text = ""
    """The budget that the change exceeds."""
    subject: Text = ""
    """What changes: members, policy, zone or budget."""
    message: Message = ""
    hash: Annotated[str, Field(max_length=128, pattern=r"^[0-9a-f]*$")] = ""
    addresses: Count = 0
    """Addresses that would become denied, in the table with the most of them."""
    node_count: Count = 0
    nodes: Annotated[list[Text], Field(max_length=MAX_NODES)] = []
    """The first nodes that wait; `dpuplane holds show` prints all."""
    requested_by: Text = ""
    approved_by: Annotated[list[Text], Field(max_length=MAX_VERDICTS)] = []
    rejected_by: Text = ""
    conditions: Conditions = []


class Hold(Model):
    """A change over its budget. It waits until two people approve it, or one rejects it."""

    spec: HoldSpec = HoldSpec()
    status: HoldStatus | None = None


HOLD = Kind(
    name="Hold",
    plural="holds",
    model=Hold,
    categories=("dpuplane",),
    columns=(
        Column("State", ".status.state"),
        Column("Subject", ".status.subject"),
        Column("Addresses", ".status.addresses", "integer"),
        Column("Nodes", ".status.nodeCount", "integer"),
        Column("Requested By", ".status.requestedBy"),
        Column("Approved By", ".status.approvedBy", priority=1),
        Column("Hash", ".status.hash", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

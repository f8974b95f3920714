"""Hold: a change over its budget, which waits until two people approve it or one rejects it.

The plane makes the objects and writes their status. A person adds one entry to `spec.verdicts`, under their user name.
A ValidatingAdmissionPolicy (hold_admission.py) compares that name with the user of the request, so the API server
itself vouches for it. The manager in `metadata.managedFields` could not: clients choose its name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.kinds import Column, Kind
from schemas.resources.model import (
    PRINTABLE,
    Conditions,
    Count,
    LogPosition,
    Message,
    Model,
    ObservedGeneration,
    Text,
    forward_only,
)

MAX_VERDICTS = 16
MAX_NODES = 20

Hash = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[0-9a-f]+$")]


class HoldVerdict(Model):
    """The decision of one person about the change with this hash."""

    user: Annotated[str, Field(min_length=1, max_length=253, pattern=PRINTABLE)]
    """The user name of the person, as `kubectl auth whoami` prints it. The API server refuses any other."""
    verdict: Literal["Approve", "Reject"]
    """Approve or Reject. A change needs two who approve, and ends with the first who rejects."""
    hash: Hash
    """The hash of the change that the person saw: `status.hash`. The hash of a hold changes when its change grows."""


class HoldSpec(Model):
    """The decisions of people about this hold."""

    verdicts: Annotated[
        list[HoldVerdict],
        Field(
            max_length=MAX_VERDICTS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["user"]},
        ),
    ] = []
    """One entry per person. People add and change only their own."""


class HoldStatus(Model):
    """The change that waits, and who approved it."""

    observed_generation: ObservedGeneration = 0
    log_position: LogPosition | None = None
    hold: Count = 0
    """The number of the hold, as in `dpuplane holds`."""
    state: Literal["Open", "Approved", "Rejected", "Ended"] = "Open"
    """Open while the change waits; Ended if the change is gone."""
    budget: Text = ""
    """The budget that the change exceeds."""
    subject: Text = ""
    """The subject of the change: members, policy, zone or budget."""
    message: Message = ""
    """The change in a sentence."""
    hash: Annotated[str, Field(max_length=128, pattern=r"^[0-9a-f]*$")] = ""
    """The hash of the change as it is now, for `spec.verdicts[].hash`."""
    addresses: Count = 0
    """Addresses that would become denied, in the table with the most of them."""
    node_count: Count = 0
    """Nodes that wait."""
    nodes: Annotated[list[Text], Field(max_length=MAX_NODES)] = []
    """The first nodes that wait; `dpuplane holds show` prints all."""
    requested_by: Text = ""
    """The principal of the change; it cannot approve it."""
    approved_by: Annotated[list[Text], Field(max_length=MAX_VERDICTS)] = []
    """The principals who approved it, as the log names them."""
    rejected_by: Text = ""
    """The principal who rejected it."""
    conditions: Conditions = []


class Hold(Model):
    """A change over its budget. It waits until two people approve it, or one rejects it."""

    model_config = ConfigDict(json_schema_extra=forward_only("fleet"))

    spec: HoldSpec = HoldSpec()
    status: HoldStatus | None = None


HOLD = Kind(
    name="Hold",
    plural="holds",
    model=Hold,
    short_names=("dpuhold",),
    categories=("dpuplane",),
    columns=(
        Column("State", ".status.state"),
        Column("Subject", ".status.subject"),
        Column("Addresses", ".status.addresses", "integer"),
        Column("Nodes", ".status.nodeCount", "integer"),
        Column("Requested By", ".status.requestedBy"),
        Column("Approved By", ".status.approvedBy", priority=1),
        Column("Hash", ".status.hash", priority=1),
        Column("Message", ".status.message", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

"""Every event of the log, as folds see it. One Struct per Avro schema that lies beside it.

Field order here is field order there: a decoded Avro record turns into its Struct by position, which a test holds.
Events that carry many items are columnar: one list (or one packed bytes) per field, and **a column of length 1 stands
for every item**, an empty one for "not given". Times are milliseconds since the epoch, offsets are log offsets.

An event states what was asked or observed; whether it takes effect is decided by the fold that reads it.
"""

from __future__ import annotations

from typing import TypeAlias

from schemas.envelope import Envelope
from schemas.events.cliques import (
    CliqueCapacitySet,
    DaemonReadinessReported,
    IndexClaimed,
    IndexReleased,
    SessionExpired,
    SessionOpened,
)
from schemas.events.decisions import DecisionRecorded
from schemas.events.dpus import (
    DeadlinePassed,
    DpuRegistered,
    LifecycleRequested,
    StepFailed,
    StepProgressed,
    StepStarted,
    StepSucceeded,
)
from schemas.events.fleet import (
    AGENT_ADDRESS4,
    AGENT_ADDRESS6,
    AGENT_JOINED,
    INFERRED,
    LEFT,
    MAX_STATE,
    PRESENT,
    SUPERSEDED,
    BudgetSet,
    HoldApproved,
    HoldRejected,
    MembershipChanged,
    PolicyDeleted,
    PolicySet,
    WritesFrozen,
    WritesThawed,
    ZoneUpdated,
)
from schemas.events.installs import InstallsReported
from schemas.events.log import FoldVersionUpgraded, LogCreated
from schemas.events.zones import (
    NodesChanged,
    NodesJoined,
    NodesLeft,
    NodesSuperseded,
    OutboxAcknowledged,
    SnapshotCompleted,
    ZoneDeleted,
    ZoneLimitsSet,
)

__all__ = [
    "AGENT_ADDRESS4",
    "AGENT_ADDRESS6",
    "AGENT_JOINED",
    "INFERRED",
    "LEFT",
    "MAX_FORWARD_BYTES",
    "MAX_FORWARD_ITEMS",
    "MAX_ITEMS",
    "MAX_STATE",
    "MAX_STATED_BYTES",
    "PRESENT",
    "SUPERSEDED",
    "BudgetSet",
    "CliqueCapacitySet",
    "DaemonReadinessReported",
    "DeadlinePassed",
    "DecisionRecorded",
    "DpuRegistered",
    "Envelope",
    "Event",
    "FoldVersionUpgraded",
    "HoldApproved",
    "HoldRejected",
    "IndexClaimed",
    "IndexReleased",
    "InstallsReported",
    "LifecycleRequested",
    "LogCreated",
    "MembershipChanged",
    "NodesChanged",
    "NodesJoined",
    "NodesLeft",
    "NodesSuperseded",
    "OutboxAcknowledged",
    "PolicyDeleted",
    "PolicySet",
    "SessionExpired",
    "SessionOpened",
    "SnapshotCompleted",
    "StepFailed",
    "StepProgressed",
    "StepStarted",
    "StepSucceeded",
    "WritesFrozen",
    "WritesThawed",
    "ZoneDeleted",
    "ZoneLimitsSet",
    "ZoneUpdated",
]

Event: TypeAlias = (
    LogCreated
    | FoldVersionUpgraded
    | NodesJoined
    | NodesChanged
    | NodesLeft
    | SnapshotCompleted
    | NodesSuperseded
    | ZoneLimitsSet
    | ZoneDeleted
    | OutboxAcknowledged
    | DpuRegistered
    | LifecycleRequested
    | StepStarted
    | StepProgressed
    | StepSucceeded
    | StepFailed
    | DeadlinePassed
    | IndexClaimed
    | IndexReleased
    | CliqueCapacitySet
    | DaemonReadinessReported
    | SessionOpened
    | SessionExpired
    | MembershipChanged
    | PolicySet
    | PolicyDeleted
    | BudgetSet
    | HoldApproved
    | HoldRejected
    | ZoneUpdated
    | WritesFrozen
    | WritesThawed
    | InstallsReported
    | DecisionRecorded
)

MAX_ITEMS = 1_000
"""Items of one record at most."""

MAX_STATED_BYTES = 256 * 1024
"""Encoded size of a stated record at most; what one record changes must fit one forward."""

MAX_FORWARD_ITEMS = 2_000
"""Items of a MembershipChanged at most: two full records, some milliseconds for whoever makes or folds it."""

MAX_FORWARD_BYTES = 512 * 1024
"""Encoded size of a MembershipChanged at most."""

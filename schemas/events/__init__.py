"""The events of the log, as folds see them: one Struct for each Avro schema in this folder.

A Struct has its fields in the order of its schema: a decoded Avro record becomes a Struct by position, and a test
checks the order. Events about many items are columnar: each field is a list, or packed bytes. **A column of length 1
applies to every item**; an empty column means "not given". Times are milliseconds since the epoch, offsets are log
offsets.

An event records a request or an observation. The fold that reads it decides whether it takes effect.
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
    "MAX_COMMAND_BYTES",
    "MAX_FORWARD_BYTES",
    "MAX_FORWARD_ITEMS",
    "MAX_ITEMS",
    "MAX_STATE",
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
"""Maximum of items in one record."""

MAX_COMMAND_BYTES = 256 * 1024
"""Maximum of the encoded size of a record from outside. The changes of one record must fit one forward."""

MAX_FORWARD_ITEMS = 2_000
"""Maximum of items in a MembershipChanged: two full records. To encode or fold that many takes some milliseconds."""

MAX_FORWARD_BYTES = 512 * 1024
"""Maximum of the encoded size of a MembershipChanged."""

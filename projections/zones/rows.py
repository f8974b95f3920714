"""Rows of a zones partition: nodes, the outbox to fleet, zones with their limits, DPUs.

Several zones share a partition, and rows are keyed by the name of a node or DPU. So a node that joins another zone of
the same partition moves there, and a DPU's name is unique across these zones.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from projections.attempt_limits import AttemptsByFailure

MAX_ACTOR = 300
"""Maximum number of characters of an actor in a forward. No certificate has a longer name: a longer actor means a
forged log."""


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A present node. `created_ms` and `uid` are its incarnation.

    `changed` and `changed_ms` are the offset and the append time of the record that changed it last.

    `address4` is 0 for none, `address6` is 16 bytes or empty. `agent` has bits for the fields that the node's own
    agent set (AGENT_JOINED and the like). It is 0 if an operator set all fields.
    """

    zone: str
    created_ms: int
    uid: str
    address4: int
    address6: bytes
    labels: dict[str, str]
    changed: int
    changed_ms: int
    agent: int = 0


class NodeTombstone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tombstone of a node that left, stored until fleet has folded it. `changed` and `changed_ms` are the offset
    and the append time of the record that removed the node.

    `state` is one of the states of MembershipChanged. `last_present_ms` is the append time of the node's last join or
    change before it left. It is 0 if the node's own agent had joined the node: neither such a join nor the leave after
    it removes the node from another zone.
    """

    zone: str
    created_ms: int
    uid: str
    state: int
    changed: int
    changed_ms: int
    last_present_ms: int


class CauseRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The command behind a record that changed nodes, and its actor, stored until fleet has the record."""

    command_id: str
    actor: str


class JoinActor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The actor of the records that each join one new node. The row applies from its offset up to the offset of the
    next row."""

    actor: str


class SourceSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last snapshot of a zone that a source completed. `offset` is the offset of its SnapshotCompleted."""

    count: int
    list_hash: bytes
    issued_ms: int
    offset: int


class SourceList(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The newest complete list of a source that this partition knows: its resource version, and whether it may lack
    nodes because the source was restored from an older backup."""

    version: int
    restored: bool
    issued_ms: int


class Zone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A zone that has, or had, a node or DPU in this partition, or a limit of its own. A limit of 0 means the default.

    All ordinals that were ever used are below `ordinals`. The ordinal of a deleted DPU is not reused while there are
    new ordinals, because install reports of it remain and would be attributed to the new DPU. `agent_networks` and
    `agent_label_keys` limit what node agents may set. `attempt_limits` bounds the attempts at a step. A zone that was
    `deleted` exists again while it has a node or a DPU. The row of a deleted zone stays because of its ordinals, and
    until fleet clears its limits.
    """

    parallel_installs: int = 0
    unavailable_nodes: int = 0
    ordinals: int = 0
    agent_networks: tuple[str, ...] = ()
    agent_label_keys: tuple[str, ...] = ()
    attempt_limits: AttemptsByFailure = AttemptsByFailure()
    deleted: bool = False

    def must_stay(self) -> bool:
        """Whether the row of a deleted zone has data that must be retained."""
        return replace(self, deleted=False) != Zone()


class ForwardingMarks(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`fleet` is the offset of fleet up to which this partition has accepted the records of fleet's outbox. `forwarded`
    is an offset of this partition: fleet has folded all changes of the partition below it."""

    fleet: int = 0
    forwarded: int = 0


class WantedDpu(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The state of a DPU that an object of custom resources wants. A DPU without such a row belongs to an operator.

    `object` is the key of the object. `image` is what shall be installed, empty for nothing yet. `node` takes effect
    once the former node of the DPU is in service again.
    """

    object: str
    zone: str
    node: str
    serial: str
    bmc_address: str
    image: str


class ResourcesMark(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The offset of a resources partition up to which this partition knows what its objects want."""

    to_offset: int


class DpuNetwork(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The network document that is wanted on a DPU, and what was reported of it.

    `version` is the offset of the record that brought the document to this DPU, so it only grows. `applied` is the
    version that the DPU has, 0 for none. `unresolved` are the interfaces of that document whose ports do not exist yet.
    """

    digest: str
    version: int
    applied: int = 0
    unresolved: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def is_applied(self) -> bool:
        """Whether the DPU has the wanted document, and every port of it."""
        return self.applied == self.version and not self.unresolved


class NetworkText(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The text of a network document, which DPUs share by its digest."""

    text: str


StepState = Literal["idle", "open", "running"]
"""State of a DPU's step: no work, waiting for an attempt, attempt running."""


class Dpu(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A DPU: its properties, its target image, and the state of its lifecycle.

    While the DPU is in Error, `entered`, `failures` and `failed` describe the phase that failed.
    """

    zone: str
    ordinal: int
    node: str
    serial: str
    bmc_address: str
    phase: str
    attempt: int
    """The number of the last attempt. It starts at the offset of the DPU's registration and only grows, so a record
    about an earlier attempt, or about an earlier DPU of this name, never matches a later attempt."""
    entered: int
    """The value of `attempt` when the present phase began."""
    since: int
    """The offset at which the present phase began. It also orders the queue of Pending DPUs."""
    since_ms: int
    step_state: StepState = "idle"
    image: str = ""
    """The target image."""
    installed: str = ""
    """The image that the DPU serves with; empty once an install has begun to alter the DPU."""
    resume: str = ""
    """The phase that follows Pending or Error."""
    effect: bool = False
    """Whether the DPU's node is out of service for the sake of this DPU."""
    paused: bool = False
    swapped: bool = False
    """Whether another card has replaced the provisioned one."""
    failures: int = 0
    """The number of failures in the present phase."""
    disowned: int = 0
    """The last attempt whose tasks on the device must not be adopted: tasks of an earlier phase, and failed tasks."""
    not_before_ms: int = 0
    deadline_ms: int = 0
    began_ms: int = 0
    """The fold time at which the last attempt began. It is never less than the value of an earlier attempt or phase,
    because devices refuse older attempts."""
    provisioner: str = ""
    task: str = ""
    percent: int = 0
    message: str = ""
    facts: dict[str, str] = {}
    """The properties that the device has reported."""
    failed: AttemptsByFailure = AttemptsByFailure()
    """The failures in the present phase by kind; each kind has its own limit of attempts."""

    @property
    def phase_attempts(self) -> int:
        """The number of attempts at the present phase."""
        return self.attempt - self.entered

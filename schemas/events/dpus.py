"""Events about DPUs and their lifecycle, in the partition of their zone."""

from __future__ import annotations

from schemas.envelope import Event


class DpuRegistered(Event, frozen=True, gc=False):
    """Registers a DPU of a zone, with the address of its BMC and its serial number, which identifies the card."""

    schema_id = 10
    zone: str
    dpu: str
    node: str
    serial: str
    bmc_address: str


class LifecycleRequested(Event, frozen=True, gc=False):
    """An operator's request for a DPU: provision (with an image), pause, resume, retry, skip, abort or delete."""

    schema_id = 11
    zone: str
    dpu: str
    request: str
    image: str


class StepStarted(Event, frozen=True, gc=False):
    """A provisioner starts attempt `attempt` at the open step of a DPU. If several do, the first record wins.

    `provisioner` is the replica's name, a `#`, and an id of its process run.
    """

    schema_id = 12
    zone: str
    dpu: str
    phase: str
    attempt: int
    provisioner: str


class StepProgressed(Event, frozen=True, gc=False):
    """The device accepted a task for the open attempt, or made progress. A later provisioner adopts the task."""

    schema_id = 13
    zone: str
    dpu: str
    phase: str
    attempt: int
    task: str
    percent: int


class StepSucceeded(Event, frozen=True, gc=False):
    """The open attempt succeeded; `facts` are the device's own reports (image, serial, boot id)."""

    schema_id = 14
    zone: str
    dpu: str
    phase: str
    attempt: int
    facts: dict[str, str]


class StepFailed(Event, frozen=True, gc=False):
    """The open attempt failed. `kind` (transient, device or operator), never the message, decides the next step.

    A fourth kind, lost, comes from another provisioner: the provisioner of the attempt has vanished, and another may
    continue.
    """

    schema_id = 15
    zone: str
    dpu: str
    phase: str
    attempt: int
    kind: str
    message: str


class DeadlinePassed(Event, frozen=True, gc=False):
    """A deadline of the subject has passed. It counts only if its own append time has reached the deadline."""

    schema_id = 16
    kind: str
    deadline_ms: int

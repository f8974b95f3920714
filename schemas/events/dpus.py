"""Events about DPUs and their lifecycle, in the partition of their zone."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class DpuRegistered(msgspec.Struct, frozen=True, gc=False):
    """Registers a DPU of a zone, with the address of its BMC and its serial number, which identifies the card."""

    envelope: Envelope
    zone: str
    dpu: str
    node: str
    serial: str
    bmc_address: str


class LifecycleRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator's request for a DPU: provision (with an image), pause, resume, retry, skip, abort or delete."""

    envelope: Envelope
    zone: str
    dpu: str
    request: str
    image: str


class StepStarted(msgspec.Struct, frozen=True, gc=False):
    """A provisioner starts attempt `attempt` at the open step of a DPU; the fold accepts the first that fits.

    `provisioner` is the replica's name, a `#`, and an id of its process run.
    """

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    provisioner: str


class StepProgressed(msgspec.Struct, frozen=True, gc=False):
    """The device accepted a task for the open attempt, or made progress. A later provisioner adopts the task."""

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    task: str
    percent: int


class StepSucceeded(msgspec.Struct, frozen=True, gc=False):
    """The open attempt succeeded; `facts` are the device's own reports (image, serial, boot id)."""

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    facts: dict[str, str]


class StepFailed(msgspec.Struct, frozen=True, gc=False):
    """The open attempt failed. `kind` (transient, device or operator), never the message, decides the next step.

    A fourth kind, lost, comes from another provisioner: the provisioner of the attempt has vanished, and another may
    continue.
    """

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    kind: str
    message: str


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False):
    """A deadline of the subject has passed. It counts only if its own append time has reached the deadline."""

    envelope: Envelope
    kind: str
    deadline_ms: int

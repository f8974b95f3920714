"""DPUs and their lifecycle, in the partition of their zone."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class DpuRegistered(msgspec.Struct, frozen=True, gc=False):
    """A DPU of a zone: where its BMC is, and its serial number, which tells a swapped card from the old one."""

    envelope: Envelope
    zone: str
    dpu: str
    node: str
    serial: str
    bmc_address: str


class LifecycleRequested(msgspec.Struct, frozen=True, gc=False):
    """What an operator wants of a DPU: provision (with an image), pause, resume, retry, skip, abort or delete."""

    envelope: Envelope
    zone: str
    dpu: str
    request: str
    image: str


class StepStarted(msgspec.Struct, frozen=True, gc=False):
    """A provisioner takes the open step of a DPU as attempt `attempt`; the fold takes the first that fits.

    `provisioner` is the replica's name, a `#`, and a mark of this life of its process.
    """

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    provisioner: str


class StepProgressed(msgspec.Struct, frozen=True, gc=False):
    """The device accepted a task for the open attempt (whoever takes over adopts it), or got further with it."""

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    task: str
    percent: int


class StepSucceeded(msgspec.Struct, frozen=True, gc=False):
    """The open attempt is done; `facts` is what the device said of itself (image, serial, boot id)."""

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    facts: dict[str, str]


class StepFailed(msgspec.Struct, frozen=True, gc=False):
    """The open attempt failed. `kind` is transient, device or operator and decides what follows, never the message.

    A fourth, lost, is said by another provisioner: the attempt's own one is gone, and whoever comes next may go on.
    """

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    kind: str
    message: str


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False):
    """A timer's statement about its subject. It counts only if its own append time has reached the deadline."""

    envelope: Envelope
    kind: str
    deadline_ms: int

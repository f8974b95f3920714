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


class DpusWanted(Event, frozen=True, gc=False):
    """Caused by resources partition `cause_partition` in [from_offset, to_offset): the DPUs that objects of that
    partition want, as absolute states. No DPU occurs twice.

    Accepted only if `from_offset` is the end of the last range that this partition accepted from there. If a range
    needs several records, those after the first begin and end at the same offset. `objects` are the keys of the
    objects. An object with an empty zone wants its DPU no more. `images` are what shall be installed; an empty one
    leaves what the partition knows, which is nothing for a new DPU.
    """

    schema_id = 42
    cause_partition: int
    from_offset: int
    to_offset: int
    objects: list[str]
    dpus: list[str]
    zones: list[str]
    nodes: list[str]
    serials: list[str]
    bmc_addresses: list[str]
    images: list[str]


class NetworksWanted(Event, frozen=True, gc=False):
    """Caused by resources partition `cause_partition` in [from_offset, to_offset): the network documents that objects
    of that partition want on DPUs, as absolute states. No DPU occurs twice.

    Ranges are as in DpusWanted, and counted apart from those. `objects` are the keys of the DPUs' objects. The document
    of DPU i is `documents[indexes[i]]`, as canonical JSON. A DPU that its object does not want in this partition is
    passed over.
    """

    schema_id = 44
    cause_partition: int
    from_offset: int
    to_offset: int
    objects: list[str]
    dpus: list[str]
    indexes: list[int]
    documents: list[str]


class NetworksReported(Event, frozen=True, gc=False):
    """Network documents on the DPUs of one zone, as a relay knows them from the DPUs' agents.

    Entry i is about the DPUs whose ordinals are the bits of `ordinals[i]` (little-endian; ordinal n is bit n % 8 of
    byte n / 8), and whose wanted document has version `versions[i]`. They have applied version `applied[i]` of this log
    generation, 0 for none. `unresolved[i]` has the interfaces whose ports do not exist yet, separated by commas.
    `refusals[i]` is the reason why they refused the wanted document, else empty.
    """

    schema_id = 45
    zone: str
    relay: str
    versions: list[int]
    applied: list[int]
    ordinals: list[bytes]
    unresolved: list[str]
    refusals: list[str]

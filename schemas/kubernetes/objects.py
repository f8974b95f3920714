"""Objects that other programs own, with the fields that the plane uses; the decoder skips all other fields.

A Node has 10 kB or more, mostly names of images. The plane uses 300 bytes of it, so 100,000 Nodes fit in memory.
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

RACK_LABEL = "topology.kubernetes.io/rack"
"""The default label of a Node from which the plane reads the name of its rack."""


class Fields(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of all objects: names are in camel case, and unknown fields are ignored."""


class OwnerReference(Fields, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Fields, frozen=True):
    """ObjectMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None

    @property
    def created_ms(self) -> int:
        """The creation time in milliseconds since the epoch; the API server counts seconds."""
        return round(self.creation_timestamp.timestamp() * 1000) if self.creation_timestamp else 0


class NodeAddress(Fields, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class NodeStatus(Fields, frozen=True):
    addresses: list[NodeAddress] | None = None


class Taint(Fields, frozen=True, gc=False):
    key: str = ""
    effect: str = ""


class NodeSpec(Fields, frozen=True):
    taints: list[Taint] | None = None


class Node(Fields, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodSpec(Fields, frozen=True, gc=False):
    node_name: str = ""


class PodCondition(Fields, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class PodStatus(Fields, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[PodCondition] | None = None


class Pod(Fields, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the pod runs and its condition Ready is true."""
        conditions = self.status.conditions or ()
        return self.status.phase == "Running" and any(c.type == "Ready" and c.status == "True" for c in conditions)


class Custom(Fields, frozen=True):
    """An object of a kind that has a model of its own: its metadata, and the rest as JSON for that model."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class ListMetadata(Fields, frozen=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


Item = TypeVar("Item")


class ObjectList(msgspec.Struct, Generic[Item], frozen=True):
    """One page of a list."""

    metadata: ListMetadata
    items: list[Item]


def version_number(version: str) -> int:
    """A resource version as a number: versions grow as integers (KEP-5504). 0 for one that is not decimal."""
    return int(version) if version.isdecimal() else 0

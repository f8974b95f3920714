"""The DPUs that DPUSets can select: DPUDevices of DPUNodes and, in the form of release 24.10, DPUs of nodes.

A DPUDevice is in the DPUNode that its label names, else in the oldest DPUNode that lists it. Release 24.10 has neither
kind: node feature discovery labels a node with `feature.node.kubernetes.io/dpu-<number>-<property>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from projections.resources.kinds import DPU_DEVICE, DPU_NODE, NODE
from projections.resources.specs import DPUDeviceSpec, DPUNodeSpec, Labels, read
from projections.resources.state import ObjectId, Resource, object_id
from schemas.resources.dpf.names import DEVICE_PCI_ADDRESS, DPU_NODE_NAME

FEATURE_PREFIX = "feature.node.kubernetes.io/dpu-"
_PCI_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4}-)?[0-9a-fA-F]{2}-[0-9a-fA-F]{2}")
_PCI_LABEL = re.compile(re.escape(FEATURE_PREFIX) + r"([0-9]{1,4})-pci-address")


class HostDevice(NamedTuple):
    """A DPU in a host. `number` is -1 for a DPUDevice, else the number of the DPU in the labels of its node.

    `namespace` is empty for the DPU of a node: DPUSets of any namespace can select it.
    """

    key: str
    """The key of the DPUDevice; for a DPU of a node, the key of the node with the DPU's number."""
    source: str
    namespace: str
    host: str
    name: str
    """The name of the DPUDevice; for a DPU of a node, its PCI address as `0000-03-00`."""
    number: int
    host_labels: Labels
    labels: Labels
    spec: DPUDeviceSpec

    @property
    def pci_address(self) -> str | None:
        return self.name if self.number >= 0 else self.labels.get(DEVICE_PCI_ADDRESS)


def devices_of_node(key: str, row: Resource) -> Iterator[HostDevice]:
    """The DPUs that the labels of a node state."""
    at = object_id(key)
    for label in sorted(row.labels):
        found = _PCI_LABEL.fullmatch(label)
        if found and _PCI_ADDRESS.fullmatch(row.labels[label]):
            number = int(found[1])
            yield HostDevice(
                key=f"{key}#{number}",
                source=at.source,
                namespace="",
                host=at.name,
                name=row.labels[label].lower(),
                number=number,
                host_labels=row.labels,
                labels=row.labels,
                spec=DPUDeviceSpec(),
            )


def listed_devices(row: Resource) -> tuple[str, ...]:
    """The names of the DPUDevices that a DPUNode lists."""
    spec = read(DPUNodeSpec, row)
    return () if isinstance(spec, str) else tuple(each.name for each in spec.dpus or ())


def device_of(key: str, rows: Mapping[str, Resource], listing: Mapping[str, object]) -> HostDevice | None:
    """The device of a DPUDevice; None while it is deleted or in no DPUNode. `listing` are keys of DPUNodes that list
    it."""
    row = rows.get(key)
    if row is None or row.deleted_ms:
        return None
    at = object_id(key)
    host = row.labels.get(DPU_NODE_NAME) or _oldest(rows, listing)
    node = rows.get(ObjectId(at.source, DPU_NODE, at.namespace, host).key) if host else None
    spec = read(DPUDeviceSpec, row)
    if node is None or node.deleted_ms or isinstance(spec, str):
        return None
    return HostDevice(key, at.source, at.namespace, host, at.name, -1, node.labels, row.labels, spec)


def hides_node(source: str, namespace: str, host: str, rows: Mapping[str, Resource]) -> bool:
    """Whether a DPUNode stands for the node of the same name: then its DPUs are DPUDevices."""
    return ObjectId(source, DPU_NODE, namespace, host).key in rows


def _oldest(rows: Mapping[str, Resource], listing: Mapping[str, object]) -> str:
    alive = [(rows[key].created_ms, key) for key in listing if key in rows and not rows[key].deleted_ms]
    return object_id(min(alive)[1]).name if alive else ""


KINDS = frozenset((NODE, DPU_NODE, DPU_DEVICE))
"""The kinds that devices are made from."""

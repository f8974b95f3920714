"""The devices of each host, kept up to date with the objects that they are made from: Node, DPUNode and DPUDevice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

from projections.resources.devices import Device, device_of, devices_of_node, listed_devices
from projections.resources.kinds import DPU_DEVICE, DPU_NODE, NODE
from projections.resources.state import ObjectId, Resource, object_id
from schemas.resources.dpf.names import DPU_NODE_NAME

Keys = dict[str, None]


class HostIndex:
    """All devices by key. `update` costs as much as the changed hosts have devices."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self._listing: MutableMapping[str, Keys] = {}
        """The DPUNodes that list each DPUDevice."""
        self._listed: dict[str, tuple[str, ...]] = {}
        """The DPUDevices that each DPUNode lists."""
        self._labelled: MutableMapping[str, Keys] = {}
        """The DPUDevices whose label names each DPUNode."""
        self._label_of: dict[str, str] = {}
        """The DPUNode that the label of each DPUDevice names."""
        self._of_node: dict[str, tuple[str, ...]] = {}
        """The devices in the labels of each Node."""

    def update(self, rows: Mapping[str, Resource], keys: Iterable[str]) -> Keys:
        """Read these objects again. Returns the keys of devices that may have changed."""
        touched: Keys = {}
        stale: Keys = {}
        for key in keys:
            at = object_id(key)
            if at.kind == NODE:
                touched |= self._read_node(key, rows.get(key))
            elif at.kind == DPU_DEVICE:
                self._read_label(key, at, rows.get(key))
                stale[key] = None
            elif at.kind == DPU_NODE:
                stale |= self._read_host(key, at, rows.get(key))
                touched |= dict.fromkeys(self._of_node.get(ObjectId(at.source, NODE, "", at.name).key, ()))
        for key in stale:
            device = device_of(key, rows, self._listing.get(key, {}))
            if device != self.devices.get(key):
                touched[key] = None
                self._put(key, device)
        return touched

    def labelled(self, key: str) -> tuple[str, ...]:
        """The DPUDevices whose label names a DPUNode."""
        return tuple(sorted(self._labelled.get(key, ())))

    def _read_node(self, key: str, row: Resource | None) -> Keys:
        earlier = self._of_node.pop(key, ())
        found = {each.key: each for each in devices_of_node(key, row)} if row and not row.deleted_ms else {}
        for each in dict.fromkeys((*earlier, *found)):
            self._put(each, found.get(each))
        if found:
            self._of_node[key] = tuple(found)
        return dict.fromkeys((*earlier, *found))

    def _read_label(self, key: str, at: ObjectId, row: Resource | None) -> None:
        _remove(self._labelled, self._label_of.pop(key, ""), key)
        if row and (host := row.labels.get(DPU_NODE_NAME)):
            node = self._label_of[key] = ObjectId(at.source, DPU_NODE, at.namespace, host).key
            self._labelled.setdefault(node, {})[key] = None

    def _read_host(self, key: str, at: ObjectId, row: Resource | None) -> Keys:
        """The DPUDevices that a changed DPUNode concerns."""
        earlier = self._listed.pop(key, ())
        names = listed_devices(row) if row else ()
        listed = tuple(ObjectId(at.source, DPU_DEVICE, at.namespace, name).key for name in names)
        for device in earlier:
            _remove(self._listing, device, key)
        for device in listed:
            self._listing.setdefault(device, {})[key] = None
        if listed:
            self._listed[key] = listed
        return dict.fromkeys((*earlier, *listed, *self._labelled.get(key, ())))

    def _put(self, key: str, device: Device | None) -> None:
        if device is None:
            self.devices.pop(key, None)
        else:
            self.devices[key] = device


def _remove(index: MutableMapping[str, Keys], entry: str, key: str) -> None:
    index.get(entry, {}).pop(key, None)
    if not index.get(entry, True):
        del index[entry]

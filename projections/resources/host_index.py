"""The devices of each host, kept up to date with the objects that they are made from: Node, DPUNode and DPUDevice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TypeVar

from projections.resources.devices import HostDevice, device_of, devices_of_node, listed_devices
from projections.resources.kinds import DPU_DEVICE, DPU_NODE, NODE
from projections.resources.state import ObjectId, Resource, object_id
from schemas.resources.dpf.names import DPU_NODE_NAME

Keys = dict[str, None]
Serial = tuple[str, str]
"""A source, and a serial number."""
_Entry = TypeVar("_Entry", str, Serial)


class HostIndex:
    """All devices by key. `update` costs as much as the changed hosts have devices."""

    def __init__(self) -> None:
        self.devices: dict[str, HostDevice] = {}
        self._listing: MutableMapping[str, Keys] = {}
        """The DPUNodes that list each DPUDevice."""
        self._listed: dict[str, tuple[str, ...]] = {}
        """The DPUDevices that each DPUNode lists."""
        self._labelled: MutableMapping[str, Keys] = {}
        """The DPUDevices whose label names each DPUNode."""
        self._label_of: dict[str, str] = {}
        """The DPUNode that the label of each DPUDevice names."""
        self._of_serial: MutableMapping[Serial, Keys] = {}
        """The devices of each serial number; devices without one are absent."""
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

    def of_host(self, key: str) -> tuple[str, ...]:
        """The devices of a Node or DPUNode."""
        return (*self._of_node.get(key, ()), *self._listed.get(key, ()), *sorted(self._labelled.get(key, ())))

    def twins(self, key: str) -> list[str]:
        """The other devices of the source with the serial number of this one."""
        device = self.devices.get(key)
        found = self._of_serial.get(_serial_of(device), {}) if device is not None else {}
        return [each for each in found if each != key]

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

    def _put(self, key: str, device: HostDevice | None) -> None:
        if key in self.devices:
            _remove(self._of_serial, _serial_of(self.devices[key]), key)
            del self.devices[key]
        if device is None:
            return
        self.devices[key] = device
        if device.spec.serial_number:
            # no calls of functions: a plan puts every device of the fleet
            serial = device.source, device.spec.serial_number
            if serial in self._of_serial:
                self._of_serial[serial][key] = None
            else:
                self._of_serial[serial] = {key: None}


def _remove(index: MutableMapping[_Entry, Keys], entry: _Entry, key: str) -> None:
    index.get(entry, {}).pop(key, None)
    if not index.get(entry, True):
        del index[entry]


def _serial_of(device: HostDevice) -> Serial:
    return device.source, device.spec.serial_number

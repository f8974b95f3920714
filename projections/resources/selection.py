"""Which DPUSets select which devices. A device that several DPUSets select belongs to the oldest one.

Labels are matched once: a changed host is matched with the DPUSets of its namespace, a changed DPUSet with the devices
of its namespace, and nothing else is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from projections.resources.devices import Device, hides_node
from projections.resources.host_index import HostIndex, Keys
from projections.resources.selecting import Selecting
from projections.resources.state import Resource


class Selection:
    """The DPUSets that select each device, the oldest first."""

    def __init__(self) -> None:
        self.hosts = HostIndex()
        self.sets: dict[str, Selecting] = {}
        self.selected_by: dict[str, tuple[str, ...]] = {}
        """The keys of DPUSets by device, the oldest first."""
        self._members: MutableMapping[str, Keys] = {}
        """The devices that each DPUSet selects, also those that belong to an older one."""
        self._scopes: MutableMapping[tuple[str, str], Keys] = {}
        """The DPUSets of each source and namespace."""

    def update_hosts(self, rows: Mapping[str, Resource], keys: Iterable[str]) -> Keys:
        """Read changed hosts and devices. Returns the keys of devices that changed."""
        touched = self.hosts.update(rows, keys)
        for key in touched:
            self._select(key, [*self._sets_near(self.hosts.devices.get(key), rows)])
        return touched

    def update_sets(self, rows: Mapping[str, Resource], sets: Mapping[str, Selecting | None]) -> Keys:
        """Put and remove DPUSets. Returns the keys of devices whose sets changed."""
        touched: Keys = {}
        for key, found in sets.items():
            if found == self.sets.get(key):
                continue
            touched |= self._members.get(key, {})
            self._put(key, found)
            if found is not None:
                touched |= {each.key: None for each in self.hosts.devices.values() if _is_selected(found, each, rows)}
        for key in touched:
            self._select(key, [*self._sets_near(self.hosts.devices.get(key), rows)])
        return touched

    def winner(self, device: str) -> str | None:
        """The DPUSet that a device belongs to."""
        found = self.selected_by.get(device)
        return found[0] if found else None

    def members(self, key: str) -> list[str]:
        """The devices that a DPUSet selects, sorted; some may belong to an older set."""
        return sorted(self._members.get(key, ()))

    def lost_to(self, key: str) -> dict[str, str]:
        """The devices that a DPUSet selects and that belong to an older set, by that set: one device for each."""
        found: dict[str, str] = {}
        for device in self.members(key):
            owner = self.selected_by[device][0]
            if owner != key:
                found.setdefault(owner, device)
        return found

    def _sets_near(self, device: Device | None, rows: Mapping[str, Resource]) -> Iterator[Selecting]:
        if device is None:
            return
        if device.number < 0:
            scopes = [(device.source, device.namespace)]
        else:
            scopes = [scope for scope in self._scopes if scope[0] == device.source]
        for scope in scopes:
            for key in self._scopes.get(scope, ()):
                if _is_selected(self.sets[key], device, rows):
                    yield self.sets[key]

    def _select(self, device: str, sets: list[Selecting]) -> None:
        for key in self.selected_by.pop(device, ()):
            self._members[key].pop(device, None)
            if not self._members[key]:
                del self._members[key]
        if sets:
            found = self.selected_by[device] = tuple(each.at.key for each in sorted(sets, key=lambda each: each.age))
            for key in found:
                self._members.setdefault(key, {})[device] = None

    def _put(self, key: str, found: Selecting | None) -> None:
        earlier = self.sets.pop(key, None)
        if earlier is not None:
            scope = (earlier.at.source, earlier.at.namespace)
            self._scopes[scope].pop(key)
            if not self._scopes[scope]:
                del self._scopes[scope]
        if found is not None:
            self.sets[key] = found
            self._scopes.setdefault((found.at.source, found.at.namespace), {})[key] = None


def _is_selected(found: Selecting, device: Device, rows: Mapping[str, Resource]) -> bool:
    if not found.matches(device):
        return False
    return device.number < 0 or not hides_node(device.source, found.at.namespace, device.host, rows)

"""Which DPUSets select which devices. A device that several DPUSets select belongs to the oldest one.

Labels are matched once: a changed host is matched with the DPUSets of its namespace, a changed DPUSet with the devices
of its namespace, and nothing else is read. A changed DPUSet is matched in slices, since a fleet may be of one
namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from projections.resources.devices import HostDevice, hides_node
from projections.resources.host_index import HostIndex, Keys
from projections.resources.selecting import Selecting
from projections.resources.state import Resource

SLICE_DEVICES = 1_000
"""Number of devices that are matched with a changed DPUSet at once: about two milliseconds."""


class Selection:
    """The DPUSets that select each device, the oldest first."""

    def __init__(self) -> None:
        self.hosts = HostIndex()
        self.sets: dict[str, Selecting] = {}
        self.selected_by: dict[str, tuple[str, ...]] = {}
        """The keys of DPUSets by device, the oldest first."""
        self._members: MutableMapping[str, Keys] = {}
        """The devices that each DPUSet selects, also those that belong to an older one."""
        self._lost: MutableMapping[str, Keys] = {}
        """The devices that each DPUSet selects and that belong to an older one."""
        self._scopes: MutableMapping[tuple[str, str], Keys] = {}
        """The DPUSets of each source and namespace."""

    def update_hosts(self, rows: Mapping[str, Resource], keys: Iterable[str]) -> Keys:
        """Read changed hosts and devices. Returns the keys of devices that changed."""
        touched = self.hosts.update(rows, keys)
        for key in touched:
            self._select(key, [*self._sets_near(self.hosts.devices.get(key), rows)])
        return touched

    def update_sets(
        self, rows: Mapping[str, Resource], sets: Mapping[str, Selecting | None], touched: Keys
    ) -> Iterator[None]:
        """Put and remove DPUSets, in slices. The keys of devices whose sets changed are added to `touched`."""
        for key, found in sets.items():
            if found == self.sets.get(key):
                continue
            self._put(key, found)
            devices = [*dict.fromkeys((*self._members.get(key, ()), *self.hosts.devices))]
            for start in range(0, len(devices), SLICE_DEVICES):
                for device in devices[start : start + SLICE_DEVICES]:
                    if self._match(key, found, device, rows):
                        touched[device] = None
                yield

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
        for device in self._lost.get(key, ()):
            owner = self.selected_by[device][0]
            found[owner] = min(device, found.get(owner, device))
        return dict(sorted(found.items()))

    def _sets_near(self, device: HostDevice | None, rows: Mapping[str, Resource]) -> Iterator[Selecting]:
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

    def _match(self, key: str, found: Selecting | None, device: str, rows: Mapping[str, Resource]) -> bool:
        """Match a device with a changed DPUSet. Returns whether the set selects it, or did."""
        known, earlier = self.hosts.devices.get(device), self.selected_by.get(device, ())
        is_selected = found is not None and known is not None and _is_selected(found, known, rows)
        if not is_selected and key not in earlier:
            return False
        others = [self.sets[each] for each in earlier if each != key]
        self._select(device, [*others, found] if found is not None and is_selected else others)
        return True

    def _select(self, device: str, sets: list[Selecting]) -> None:
        for key in self.selected_by.pop(device, ()):
            for index in (self._members, self._lost):
                if device in index.get(key, ()):
                    del index[key][device]
                    if not index[key]:
                        del index[key]
        if sets:
            found = self.selected_by[device] = tuple(each.at.key for each in sorted(sets, key=lambda each: each.age))
            for key in found:
                self._members.setdefault(key, {})[device] = None
            for key in found[1:]:
                self._lost.setdefault(key, {})[device] = None

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


def _is_selected(found: Selecting, device: HostDevice, rows: Mapping[str, Resource]) -> bool:
    if not found.matches(device):
        return False
    return device.number < 0 or not hides_node(device.source, found.at.namespace, device.host, rows)

"""The selectors of a DPUSet, of both generations of its API, compiled once."""

from __future__ import annotations

import re
from typing import NamedTuple

from projections.label_selectors import LabelSelector, matches
from projections.resources.devices import FEATURE_PREFIX, HostDevice
from projections.resources.selectors import compiled, of_labels
from projections.resources.specs import DPUSetSpec
from projections.resources.state import ObjectId

_NUMBER = re.compile(re.escape(FEATURE_PREFIX) + r"([0-9]{1,4})-")

Age = tuple[int, str]
"""The creation time of an object and its key: the order in which objects get what several of them want."""


class Selecting(NamedTuple):
    """The selectors of a DPUSet. A set in the newer form selects DPUDevices only.

    `number` is the number of the DPU in its node that the older form selects: one DPU of each node.
    """

    at: ObjectId
    age: Age
    hosts: LabelSelector
    devices: LabelSelector
    number: int
    is_newer_form: bool

    def matches(self, device: HostDevice) -> bool:
        """Whether the labels of a device and its host meet the selectors."""
        if self.at.source != device.source:
            return False
        if device.number < 0 and self.at.namespace != device.namespace:
            return False
        if device.number >= 0 and (self.is_newer_form or device.number != self.number):
            return False
        return matches(self.hosts, device.host_labels) and matches(self.devices, device.labels)


def selecting(at: ObjectId, age: Age, spec: DPUSetSpec) -> Selecting | str:
    """The selectors of a DPUSet, or their first fault."""
    hosts = compiled(spec.dpu_node_selector or spec.node_selector)
    if isinstance(hosts, str):
        return f"{'dpuNodeSelector' if spec.dpu_node_selector else 'nodeSelector'}.{hosts}"
    devices = compiled(spec.dpu_device_selector) if spec.dpu_device_selector else of_labels(spec.dpu_selector)
    if isinstance(devices, str):
        return f"dpuDeviceSelector.{devices}"
    numbers = [int(found[1]) for key in sorted(spec.dpu_selector or ()) if (found := _NUMBER.match(key))]
    is_newer = spec.dpu_node_selector is not None or spec.dpu_device_selector is not None
    return Selecting(at, age, hosts, devices, numbers[0] if numbers else 0, is_newer)

"""The phases of a DPU, named as in the DOCA Platform Framework, and the steps between them.

A DPU is provisioned from Pending through the steps of its install interface (install_interfaces.py) to Ready. A step is
executed in attempts, by the executor that its row names. `lifecycle` has the table of transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

INITIALIZING = "Initializing"
PENDING = "Pending"
NODE_EFFECT = "Node Effect"
INITIALIZE_INTERFACE = "Initialize Interface"
CONFIG_FIRMWARE = "Config FW Parameters"
PREPARE_IMAGE = "Prepare BFB"
OS_INSTALLING = "OS Installing"
DPU_CONFIG = "DPU Config"
REBOOTING = "Rebooting"
HOST_NETWORK = "Host Network Configuration"
CLUSTER_CONFIG = "DPU Cluster Config"
SERVICE_READINESS = "Service Readiness"
NODE_EFFECT_REMOVAL = "Node Effect Removal"
READY = "Ready"
ERROR = "Error"
DELETING = "Deleting"

_MINUTE_MS = 60_000

DEVICE = "device"
"""The executor of steps on the DPU itself, through its BMC."""
NODE = "node"
"""The executor of steps on the DPU's host, which is a node of the source cluster."""
CLUSTER = "cluster"
"""The executor of steps in the DPU cluster, of which the DPU is a node."""
RELEASE = "release"
"""The executor of the end of a DPU: on its host, in its DPU cluster and on the device."""


WAITS = "waits for "
"""Begins the progress of a step that waits for something other than a task of the device."""


class Step(NamedTuple):
    """The work of one phase: the operation that its executor performs, and the maximum duration of one attempt."""

    name: str
    executor: str
    deadline_ms: int


STEPS: Mapping[str, Step] = {
    NODE_EFFECT: Step("drain", NODE, 30 * _MINUTE_MS),
    INITIALIZE_INTERFACE: Step("initialize", DEVICE, 10 * _MINUTE_MS),
    CONFIG_FIRMWARE: Step("firmware", DEVICE, 15 * _MINUTE_MS),
    PREPARE_IMAGE: Step("prepare", DEVICE, 10 * _MINUTE_MS),
    OS_INSTALLING: Step("install", DEVICE, 60 * _MINUTE_MS),
    DPU_CONFIG: Step("configure", DEVICE, 10 * _MINUTE_MS),
    REBOOTING: Step("reboot", NODE, 20 * _MINUTE_MS),
    HOST_NETWORK: Step("host-network", NODE, 10 * _MINUTE_MS),
    CLUSTER_CONFIG: Step("join-cluster", CLUSTER, 10 * _MINUTE_MS),
    SERVICE_READINESS: Step("check-services", CLUSTER, 20 * _MINUTE_MS),
    NODE_EFFECT_REMOVAL: Step("undrain", NODE, 10 * _MINUTE_MS),
    DELETING: Step("release", RELEASE, 10 * _MINUTE_MS),
}
"""All steps, in the order of a provisioning. The row of the DPU is deleted at the end of the Deleting step."""

RENEWAL = Step("renew-certificate", DEVICE, 10 * _MINUTE_MS)
"""The step of a Ready DPU, which stays Ready: a visit to its device, whose certificate is renewed (certificates.py)."""

STEP_NAMES = tuple(step.name for step in STEPS.values())

PHASES = (INITIALIZING, PENDING, *STEPS, READY, ERROR)

PROVISIONING = tuple(phase for phase in STEPS if phase != DELETING)
INSTALLING = frozenset(PROVISIONING) - {NODE_EFFECT_REMOVAL}
"""Phases that count as a parallel install: from admission until only the Node Effect Removal is left."""

ALTERING = frozenset(PROVISIONING[PROVISIONING.index(CONFIG_FIRMWARE) : -1])
"""Steps that alter the device. From the first of these steps on, the device cannot serve with its former image."""

ON_DEVICE = frozenset((INITIALIZE_INTERFACE, CONFIG_FIRMWARE, PREPARE_IMAGE, OS_INSTALLING, DPU_CONFIG, REBOOTING))
"""Steps that have a part on a device. An installer of a real device has nothing to do in others: those are the host's
and the DPU cluster's."""

INSTALLED = frozenset(PROVISIONING[PROVISIONING.index(OS_INSTALLING) : -1])
"""Steps after which the device must run the target image."""

"""The phases of a DPU, named as in the DOCA Platform Framework, and the steps between them.

A DPU is provisioned from Pending through every step to Ready. A step is work on the device or its node, executed in
attempts; `lifecycle` has the table of transitions.
"""

from __future__ import annotations

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


class Step(NamedTuple):
    """A phase in which a provisioner works: the phase after it, and the deadline of one attempt."""

    next_phase: str
    deadline_ms: int


STEPS = {
    NODE_EFFECT: Step(INITIALIZE_INTERFACE, 30 * _MINUTE_MS),
    INITIALIZE_INTERFACE: Step(CONFIG_FIRMWARE, 10 * _MINUTE_MS),
    CONFIG_FIRMWARE: Step(PREPARE_IMAGE, 15 * _MINUTE_MS),
    PREPARE_IMAGE: Step(OS_INSTALLING, 10 * _MINUTE_MS),
    OS_INSTALLING: Step(DPU_CONFIG, 60 * _MINUTE_MS),
    DPU_CONFIG: Step(REBOOTING, 10 * _MINUTE_MS),
    REBOOTING: Step(HOST_NETWORK, 20 * _MINUTE_MS),
    HOST_NETWORK: Step(CLUSTER_CONFIG, 10 * _MINUTE_MS),
    CLUSTER_CONFIG: Step(SERVICE_READINESS, 10 * _MINUTE_MS),
    SERVICE_READINESS: Step(NODE_EFFECT_REMOVAL, 20 * _MINUTE_MS),
    NODE_EFFECT_REMOVAL: Step(READY, 10 * _MINUTE_MS),
    DELETING: Step("", 10 * _MINUTE_MS),
}
"""All steps, in the order of a provisioning. The row of the DPU is deleted at the end of the Deleting step."""

PHASES = (INITIALIZING, PENDING, *STEPS, READY, ERROR)

PROVISIONING = tuple(phase for phase in STEPS if phase != DELETING)
INSTALLING = frozenset(PROVISIONING) - {NODE_EFFECT_REMOVAL}
"""Phases that count as a parallel install: from admission until only the Node Effect Removal is left."""

FIRST_ALTERING_STEP = CONFIG_FIRMWARE
"""The first step that alters the device: from here on it cannot serve with its former image."""

"""Install interfaces: how DPUs are installed, by the scheme of their BMC addresses.

An interface has the form of its addresses, and its steps with their executors. To add an interface, add a row to
INTERFACES here, and a backend for its scheme (deploy/composition/bmc_backends.py). The steps run in the order of STEPS.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from projections.field_checks import check_text, quoted
from projections.zones.dpus.phases import DEVICE, HOST_NETWORK, PROVISIONING, READY, RENEWAL, STEPS, Step

_REST = re.compile(r"[^\s/]\S*")


class InstallInterface(NamedTuple):
    """The form of an address after its scheme and a colon, and the steps by phase.

    `steps` may lack phases of STEPS, but always has Node Effect, Node Effect Removal and Deleting. With `renews`, the
    certificates of Ready DPUs are renewed.
    """

    rest: str
    steps: Mapping[str, Step] = STEPS
    renews: bool = False


_NETWORK_ON_DEVICE = {HOST_NETWORK: STEPS[HOST_NETWORK]._replace(executor=DEVICE)}
"""A simulated device plays the network of its host, so this step belongs to the process that has the device."""

INTERFACES: Mapping[str, InstallInterface] = {
    "gnoi": InstallInterface("//HOST:PORT", renews=True),
    "redfish": InstallInterface("//HOST:PORT", renews=True),
    "rshim": InstallInterface("NAMESPACE/HOST"),
    "simulated": InstallInterface("NAME", {**STEPS, **_NETWORK_ON_DEVICE}),
}
"""Install interfaces by scheme."""

_NO_INTERFACE = InstallInterface("")
"""The interface of a DPU without an address. The first step of such a DPU fails."""


def step_of(bmc_address: str, phase: str) -> Step:
    """The step of a DPU in this phase. If the address was replaced during the step, the new interface may lack the
    phase; the step then comes from STEPS."""
    if phase == READY:
        return RENEWAL
    return _interface(bmc_address).steps.get(phase) or STEPS[phase]


def phase_after(bmc_address: str, phase: str) -> str:
    """The phase that follows `phase` when a DPU with this address is provisioned. `phase` is a phase of provisioning
    before Node Effect Removal."""
    steps = _interface(bmc_address).steps
    return next(later for later in PROVISIONING[PROVISIONING.index(phase) + 1 :] if later in steps)


def has_renewals(bmc_address: str) -> bool:
    """Whether the device at this address has a certificate that is renewed while its DPU is Ready."""
    return _interface(bmc_address).renews


def address_forms() -> str:
    """The forms of addresses, for a sentence."""
    return " or ".join(f"{scheme}:{interface.rest}" for scheme, interface in INTERFACES.items())


def is_simulated(address: str) -> bool:
    """Whether a device is simulated in the process that provisions it. Such a device also does what concerns its host
    and its DPU cluster."""
    return address.startswith("simulated:")


def check_bmc_address(field: str, value: str) -> str | None:
    """Why the address of a BMC is invalid, in one sentence; None if it is valid. An empty address is valid."""
    fault = check_text(field, value)
    if fault is None and value and not _has_form(value):
        return f"{field}: {quoted(value)} must be {address_forms()}"
    return fault


def check_executors(known: Collection[str]) -> str | None:
    """One sentence about the first step whose executor is unknown; None if every step has a known executor."""
    for scheme, interface in INTERFACES.items():
        for phase, step in interface.steps.items():
            if step.executor not in known:
                return (
                    f"executor: {step.executor!r} of step {phase!r} of install interface {scheme!r} must be one of"
                    f" {', '.join(known)}"
                )
    return None


def _has_form(address: str) -> bool:
    scheme, _, rest = address.partition(":")
    interface = INTERFACES.get(scheme)
    if interface is None:
        return False
    if interface.rest.startswith("//"):
        return rest.startswith("//") and _REST.fullmatch(rest, 2) is not None
    return _REST.fullmatch(rest) is not None


def _interface(bmc_address: str) -> InstallInterface:
    return INTERFACES.get(bmc_address.partition(":")[0], _NO_INTERFACE)

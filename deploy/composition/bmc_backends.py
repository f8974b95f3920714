"""Backends of BMCs by the scheme of their addresses.

A new backend is a module of drivers/backends and a row here; a new scheme also needs a row of INTERFACES
(projections/zones/dpus/install_interfaces.py), which the fold and the API read. The steps of a scheme that has an
installer (ActorContext.installers) are done by that; its row says what a process without it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from drivers.backends.bmc import Bmc, Connect, NeedsOperator, by_scheme
from drivers.backends.simulated_bmc import SimulatedBmcs
from projections.field_checks import quoted


@dataclass(frozen=True, slots=True)
class BmcContext:
    """The dependencies of a backend: the simulated BMCs of the process, if it has any."""

    simulated: SimulatedBmcs | None


def _simulated(context: BmcContext) -> Connect:
    return _not_simulated if context.simulated is None else context.simulated.connect


def _not_simulated(address: str) -> Bmc:
    raise NeedsOperator(f"bmc_address: {quoted(address)} needs a provisioner with --simulate")


def _installer(context: BmcContext) -> Connect:
    return _without_installer


def _without_installer(address: str) -> Bmc:
    raise NeedsOperator(f"bmc_address: {quoted(address)} needs a provisioner with an installer for its scheme")


BMC_BACKENDS: Mapping[str, Callable[[BmcContext], Connect]] = {
    "gnoi": _installer,
    "redfish": _installer,
    "rshim": _installer,
    "simulated": _simulated,
}


def connect_of(context: BmcContext) -> Connect:
    """The connector of a process. It refuses an address whose scheme has no backend."""
    return by_scheme({scheme: make(context) for scheme, make in BMC_BACKENDS.items()})

"""Installations through the rshim of a DPU: its zone knows the host whose agent writes the image, and when."""

from __future__ import annotations

from typing import NamedTuple

from projections.zones.dpus.phases import OS_INSTALLING
from projections.zones.rows import Dpu

RSHIM = "rshim"
"""The scheme of the address of a DPU that the agent of its host installs: `rshim:NAMESPACE/HOST`."""


class CertifiedHost(NamedTuple):
    """The host whose agent a certificate names. The namespace is empty if the certificate does not name it; then no
    other namespace may have a host of this name."""

    name: str
    namespace: str = ""


def is_of_host(row: Dpu, host: CertifiedHost) -> bool:
    """Whether the agent of this host installs the DPU."""
    scheme, _, path = row.bmc_address.partition(":")
    namespace, _, name = path.partition("/")
    return scheme == RSHIM and name == host.name and host.namespace in ("", namespace)


def is_being_installed(row: Dpu, image: str) -> bool:
    """Whether the DPU is in the step that installs this image."""
    return (row.phase, row.image) == (OS_INSTALLING, image) and row.step_state != "idle"

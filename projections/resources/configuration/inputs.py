"""The input of a rendering, and its result."""

from __future__ import annotations

from typing import NamedTuple

from projections.resources.configuration.flavor import FlavorSpec

MASK = "********"
"""Stands for each secret in a configuration that is shown."""

SIZE_MAX = 128 * 1024
"""Maximum size of bf.cfg in bytes: the installers of DOCA 2.8 and later read no more."""


class Join(NamedTuple):
    """How the DPU joins its DPU cluster. The token is a secret: it is filled in only while the configuration is served.

    `ca_hash` is the hash of the public key of the cluster's authority, as in `sha256:<hex>`.
    """

    endpoint: str
    ca_hash: str
    token: str = MASK


class Inputs(NamedTuple):
    """Everything that the configuration of a DPU depends on."""

    hostname: str
    """The name of the DPU, which is also the name of its node."""
    flavor: FlavorSpec
    join: Join | None = None
    is_out_of_band: bool = False
    """Whether the DPU reaches its cluster by its management port instead of a function of the host."""
    control_plane_mtu: int = 1500
    physical_functions: int = 1
    trusted_functions: int = 0
    """Scalable functions that are trusted, of those that are created."""
    has_additional_reboot: bool = False
    """Whether the DPU reboots once more at the end, since its host does not power it off."""
    user_template: str | None = None
    """A Go template for bf.cfg in place of the built-in one."""


class Configuration(NamedTuple):
    """A rendered configuration. `user_data` is part of `bf_cfg`; it is empty if a user's template made bf.cfg."""

    bf_cfg: str
    user_data: str

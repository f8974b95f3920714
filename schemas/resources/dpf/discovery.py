"""DPUDiscovery: a search for the BMCs of DPUs in a range of addresses."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.dpf.admission import discovery_faults
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.types import Int32, Time
from schemas.resources.kinds import Column, Kind
from schemas.resources.model import Model, validated

_OCTET = "(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"

ADDRESS = rf"^(({_OCTET}\.){{3}}{_OCTET}|[0-9a-fA-F:]*:[0-9a-fA-F:]*)$"

Address = Annotated[str, Field(pattern=ADDRESS)]
"""An address of either family. DPF takes IPv4 only."""


class IPRange(Model):
    """Addresses from the first to the last one, both included."""

    start_ip: Annotated[Address, Field(alias="startIP")]
    """The first address."""
    end_ip: Annotated[Address, Field(alias="endIP")]
    """The last address."""
    port: Annotated[Int32, Field(ge=1, le=65_535)] = 443
    """The port that the BMCs listen on."""


class IPRangeSpec(Model):
    """The range."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "self.ipRange.startIP != '0.0.0.0' && self.ipRange.endIP != '0.0.0.0'",
                "IP addresses cannot be 0.0.0.0",
            )
        )
    )

    ip_range: IPRange


class DPUDiscoverySpec(Model):
    """The search."""

    ip_range_spec: IPRangeSpec
    scan_interval: str = "1h"
    """The time between two searches."""
    workers: int | None = None
    """Addresses that are tried at the same time; by default one for each 255."""


class DPUDiscoveryStatus(Model):
    """The result of the last search."""

    last_scan_time: Time | None = None
    found_dpus: Annotated[int | None, Field(alias="foundDPUs")] = None


class DPUDiscovery(Model):
    """A search for DPUs. Each one that is found becomes a DPUDevice."""

    spec: DPUDiscoverySpec | None = None
    status: DPUDiscoveryStatus | None = None


DPU_DISCOVERY = Kind(
    name="DPUDiscovery",
    plural="dpudiscoveries",
    model=DPUDiscovery,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    admission=discovery_faults,
    columns=(
        Column("Last Scan", ".status.lastScanTime", "date"),
        Column("Found DPUs", ".status.foundDPUs", "integer"),
    ),
)

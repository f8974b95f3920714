"""BFB and BlueFieldSoftware: what is installed on a DPU. Both are downloaded once, verified and kept by content."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.types import AGE, Conditions, Name, ObservedGeneration, StringMap, immutable, named
from schemas.resources.kinds import Column, Kind
from schemas.resources.model import Model, validated

BFB_FINALIZER = f"{PROVISIONING}/bfb-protection"
SOFTWARE_FINALIZER = f"{PROVISIONING}/bluefieldsoftware-protection"
SOFTWARE_SET_FINALIZER_PREFIX = f"{PROVISIONING}/bfs-dpuset-"
"""Begins the finalizer that protects a BlueFieldSoftware for one DPUSet, which ends with the set's name."""
CONDITIONS = ("Initialized", "Downloaded", "Ready", "Error", "Deleted")
MAX_NAME = 187

BFBPhase = Literal["Initializing", "Downloading", "Ready", "Deleting", "Error"]
SoftwarePhase = Literal["Initializing", "Downloading", "Extracting", "Ready", "Deleting", "Error"]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9\_\-\.]+\.bfb$")]

_KEPT = ("!has(oldSelf.versions) || has(self.versions)", "versions cannot be removed once set")
_INITIALIZING = {DEFAULT: {"phase": "Initializing"}}


def _version(name: str) -> dict[str, object]:
    return immutable(f"{name} version is immutable")


class BFBVersions(Model):
    """The versions of the parts of an image."""

    bsp: Annotated[str | None, Field(json_schema_extra=_version("BSP"))] = None
    """The version of the board support package."""
    doca: Annotated[str | None, Field(json_schema_extra=_version("DOCA"))] = None
    """The version of DOCA."""
    uefi: Annotated[str | None, Field(json_schema_extra=_version("UEFI"))] = None
    """The version of the UEFI firmware."""
    atf: Annotated[str | None, Field(json_schema_extra=_version("ATF"))] = None
    """The version of the Arm Trusted Firmware."""


class BFBSpec(Model):
    """An image and where it comes from."""

    model_config = ConfigDict(json_schema_extra=validated(_KEPT))

    file_name: Annotated[FileName | None, Field(json_schema_extra=immutable())] = None
    """The name of the file on the image store; by default NAMESPACE-NAME.bfb."""
    url: Annotated[str, Field(pattern=r"^(http|https)://.+$", json_schema_extra=immutable())]
    """The address that the image is downloaded from."""
    versions: Annotated[
        BFBVersions | None,
        Field(
            json_schema_extra=validated(
                (
                    "self.bsp != '' && self.doca != '' && self.uefi != '' && self.atf != ''",
                    "all four version fields (bsp, doca, uefi, atf) must be provided when versions is set",
                )
            )
        ),
    ] = None
    """The versions of the parts, where they cannot be read from the image."""


class BFBStatus(Model):
    """The state of the download."""

    phase: BFBPhase = "Initializing"
    file_name: str | None = None
    versions: BFBVersions | None = None
    observed_generation: ObservedGeneration = None
    conditions: Conditions = None


class BFB(Model):
    """An image for DPUs: operating system and firmware in one file."""

    model_config = named(MAX_NAME)

    spec: BFBSpec | None = None
    status: Annotated[BFBStatus | None, Field(json_schema_extra=_INITIALIZING)] = None


class SoftwareSpec(Model):
    """The files of an installation. They are immutable."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            ("self == oldSelf", "BlueFieldSpec is immutable"),
            (
                "!(has(self.nicFw) && has(self.platformPldmFwBundle))",
                "nicFw and platformPldmFwBundle are mutually exclusive; set only one",
            ),
        )
    )

    os_iso: Name
    """The installer of the operating system."""
    pldm_fw_bundle: Name | Annotated[dict[str, Name], Field(min_length=1)] | None = None
    """The firmware of the DPU: one bundle, or one for each PSID."""
    platform_pldm_fw_bundle: Name | None = None
    """The firmware of the platform, with that of its NICs."""
    nic_fw: Name | None = None
    """One NIC firmware instead of the one in the platform's bundle."""


class DeviceVersions(Model):
    """The versions in the firmware of one PSID."""

    bmc_version: Name | None = None
    bmc_erot_version: Name | None = None
    sbios_version: Name | None = None
    bf_nic_fw_version: Name | None = None


class SoftwareVersions(Model):
    """The versions of the parts."""

    doca: str | None = None
    fw_bundle_version: str | None = None
    os_iso_version: Annotated[str | None, Field(alias="osISOVersion")] = None
    ew_nic_fw_version: str | None = None
    bmc_version: str | None = None
    bmc_erot_version: str | None = None
    sbios_version: str | None = None
    bf_nic_fw_version: str | None = None
    bluefield_software_versions: dict[str, DeviceVersions] | None = None
    """The versions by PSID, where each has its own firmware."""


class DownloadedComponents(Model):
    """The files that are on the image store."""

    pldm_fw_bundle: str | StringMap | None = None
    platform_pldm_fw_bundle: str | None = None
    os_iso: str | None = None
    nic_fw: str | None = None


class SoftwareStatus(Model):
    """The state of the downloads."""

    model_config = ConfigDict(json_schema_extra=validated(_KEPT))

    phase: SoftwarePhase = "Initializing"
    versions: SoftwareVersions | None = None
    downloaded_components: DownloadedComponents | None = None
    observed_generation: ObservedGeneration = None
    conditions: Conditions = None


class BlueFieldSoftware(Model):
    """The files that a BlueField-4 is installed from."""

    model_config = named(MAX_NAME)

    spec: SoftwareSpec | None = None
    status: Annotated[SoftwareStatus | None, Field(json_schema_extra=_INITIALIZING)] = None


_PHASE = Column("Phase", ".status.phase", description="phase of the download")

BFB_KIND = Kind(
    name="BFB",
    plural="bfbs",
    model=BFB,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(_PHASE, AGE),
)
BLUEFIELD_SOFTWARE = Kind(
    name="BlueFieldSoftware",
    plural="bluefieldsoftwares",
    model=BlueFieldSoftware,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(_PHASE, AGE),
)

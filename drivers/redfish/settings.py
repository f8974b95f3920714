"""The settings of a DPU: its mode, secure boot, and the privilege of its host. The next change follows from a read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from drivers.redfish.resources import Request
from projections.resources.specs import JSON

RESTARTS_MAX = 3
"""Maximum number of restarts for secure boot. A change of it takes two."""
DPU_MODE = "DpuMode"
_BIOS_PRIVILEGE = "InternalCPUModel"
_PRIVILEGED = "Privileged"
_DISABLED = "Disabled"
_RESTRICTED = "Restricted"


class NvidiaSystem(msgspec.Struct, frozen=True, rename="pascal"):
    """NVIDIA's extension of a system."""

    mode: str | None = None
    host_rshim: str | None = None


class BmcRShim(msgspec.Struct, frozen=True):
    is_enabled: bool | None = msgspec.field(default=None, name="BmcRShimEnabled")


class NvidiaManager(msgspec.Struct, frozen=True):
    """NVIDIA's extension of a manager."""

    rshim: BmcRShim | None = msgspec.field(default=None, name="BmcRShim")


class SecureBoot(msgspec.Struct, frozen=True, rename="pascal"):
    secure_boot_enable: bool | None = None
    secure_boot_current_boot: str | None = None


class Bios(msgspec.Struct, frozen=True, rename="pascal"):
    attributes: JSON | None = None


class HostPrivilege(msgspec.Struct, frozen=True):
    """The privilege of the host on a BlueField-4, as of the next reset."""

    path: str = msgspec.field(default="", name="@odata.id")
    mode: str | None = msgspec.field(default=None, name="PrivilegeMode")


class Wants(NamedTuple):
    """The settings that the objects of a DPU want. `secure_boot` is None if they leave it as it is."""

    secure_boot: bool | None = None
    is_zero_trust: bool = False
    """Whether the host must not be able to change the DPU."""


class SeenSettings(NamedTuple):
    """The settings of a DPU, as of one read; None for a setting that its BMC does not have."""

    system: str
    manager: str
    nvidia: NvidiaSystem | None = None
    rshim: bool | None = None
    secure_boot: SecureBoot | None = None
    bios: JSON | None = None
    """The attributes of the firmware, with those that the next boot sets."""
    privilege: HostPrivilege | None = None


class Change(NamedTuple):
    """Send a request, once. `name` is that of the setting."""

    name: str
    request: Request


class Restart(NamedTuple):
    """Restart the DPU, so that changes take effect."""


class Refused(NamedTuple):
    """The setting cannot be reached. The kind is that of the failure of a step."""

    kind: Literal["operator", "device"]
    message: str


SettingsMove: TypeAlias = Change | Restart | Refused | None


def first_change(wants: Wants, seen: SeenSettings, sent: Collection[str], restarts: int) -> SettingsMove:
    """The next move before an image is installed; None if there is none. `sent` are the changes that this attempt has
    sent, and `restarts` counts its restarts."""
    mode = seen.nvidia.mode if seen.nvidia is not None else None
    if mode is not None and mode != DPU_MODE:
        if "mode" in sent:
            return Refused(
                "operator",
                f"mode: the DPU is in {mode}, and {DPU_MODE} takes effect when its host is power-cycled; do that, and "
                "retry the step",
            )
        return Change("mode", Request("POST", f"{seen.system}/Oem/Nvidia/Actions/Mode.Set", {"Mode": DPU_MODE}))
    if seen.rshim is False:
        body: JSON = {"BmcRShim": {"BmcRShimEnabled": True}}
        return _once("BmcRShimEnabled", Request("PATCH", f"{seen.manager}/Oem/Nvidia", body), sent)
    return _secure_boot(wants, seen, sent, restarts)


def _secure_boot(wants: Wants, seen: SeenSettings, sent: Collection[str], restarts: int) -> SettingsMove:
    wanted, has = wants.secure_boot, seen.secure_boot
    if wanted is None:
        return None
    if has is None or has.secure_boot_enable is None:
        return (
            Refused("operator", "secureBoot: the BMC does not report it, so it cannot be set; leave it out")
            if wanted
            else None
        )
    if has.secure_boot_enable is not wanted:
        request = Request("PATCH", f"{seen.system}/SecureBoot", {"SecureBootEnable": wanted})
        return _once("SecureBootEnable", request, sent)
    current = has.secure_boot_current_boot
    if current is None or (current == "Enabled") is wanted:
        return None
    if restarts >= RESTARTS_MAX:
        return Refused("device", f"secureBoot: it is still {current} after {restarts} restarts")
    return Restart()


def lock_down(wants: Wants, seen: SeenSettings, sent: Collection[str]) -> SettingsMove:
    """The next change that takes from the host what it must not do; None if there is none. The attributes of the
    firmware take effect at the next boot, which the installation brings."""
    if not wants.is_zero_trust:
        return None
    if seen.privilege is not None and seen.privilege.mode not in (None, _RESTRICTED):
        return _once("PrivilegeMode", Request("PATCH", seen.privilege.path, {"PrivilegeMode": _RESTRICTED}), sent)
    if seen.nvidia is not None and seen.nvidia.host_rshim not in (None, _DISABLED):
        path = f"{seen.system}/Oem/Nvidia/Actions/HostRshim.Set"
        return _once("HostRshim", Request("POST", path, {"HostRshim": _DISABLED}), sent)
    if seen.bios is not None and seen.bios.get(_BIOS_PRIVILEGE, _PRIVILEGED) != _PRIVILEGED:
        body: JSON = {"Attributes": {_BIOS_PRIVILEGE: _PRIVILEGED}}
        return _once(_BIOS_PRIVILEGE, Request("PATCH", f"{seen.system}/Bios/Settings", body), sent)
    return None


def _once(name: str, request: Request, sent: Collection[str]) -> SettingsMove:
    """A change, unless it was sent already: a BMC may accept a change and not make it."""
    if name in sent:
        return Refused("device", f"{name}: the BMC accepted a change of it, and reports the old value")
    return Change(name, request)

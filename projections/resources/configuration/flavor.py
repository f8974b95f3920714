"""The fields of a DPUFlavor that its configuration is rendered from, and the rules that make them safe to write.

Admission checks most of these rules too. They are repeated here since a spec may have been stated under older rules.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from projections.field_checks import quoted
from projections.resources.specs import Spec

UBUNTU_PASSWORD = "ubuntu_PASSWORD"
"""The parameter of bf.cfg with the hash of a password. It becomes the password in user-data, as in DPF."""

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_FIRMWARE_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_.\[\]]*=[^\s]*")
_MODE = re.compile(r"0?[0-7]{3,4}")
_PORTS = {"*": "*_pciconf*", "p0": "*_pciconf[0-9]", "p1": "*_pciconf[0-9].1"}
"""The devices in /dev/mst that a port stands for."""


class Grub(Spec, frozen=True):
    """The boot loader."""

    kernel_parameters: tuple[str, ...] | None = None


class Sysctl(Spec, frozen=True):
    """Settings of the kernel."""

    parameters: tuple[str, ...] | None = None


class NVConfig(Spec, frozen=True):
    """Firmware settings of a port."""

    device: str | None = None
    parameters: tuple[str, ...] | None = None

    @property
    def devices(self) -> str:
        """A shell pattern for the devices in /dev/mst. It is one of three constants."""
        return _PORTS.get((self.device or "*").strip().lower(), "")


class OVS(Spec, frozen=True):
    """The virtual switch."""

    raw_config_script: str | None = None


class ConfigFile(Spec, frozen=True):
    """A file on the DPU. Those of type agent-applied are written later, by the agent on the DPU."""

    type: str | None = None
    path: str | None = None
    operation: str | None = None
    raw: str | None = None
    permissions: str | None = None

    @property
    def is_written_at_install(self) -> bool:
        return self.type in (None, "cloud-init")


class Containerd(Spec, frozen=True):
    """The container runtime."""

    registry_endpoint: str | None = None


class PackageVersion(Spec, frozen=True):
    """The version of a package."""

    value: str = ""
    match_policy: str | None = None


class Package(Spec, frozen=True):
    """A package that must be on the DPU."""

    name: str
    version: PackageVersion | None = None


class SystemdService(Spec, frozen=True):
    """A service of the system that is started or enabled."""

    name: str
    operation: str = ""


class FlavorSpec(Spec, frozen=True):
    """The spec of a DPUFlavor."""

    grub: Grub | None = None
    sysctl: Sysctl | None = None
    nvconfig: tuple[NVConfig, ...] | None = None
    ovs: OVS | None = None
    bfcfg_parameters: tuple[str, ...] | None = None
    config_files: tuple[ConfigFile, ...] | None = None
    packages: tuple[Package, ...] | None = None
    systemd_services: tuple[SystemdService, ...] | None = None
    containerd_config: Containerd | None = None
    dpu_mode: str | None = None

    @property
    def kernel_parameters(self) -> str:
        return " ".join((self.grub and self.grub.kernel_parameters) or ()).strip()

    @property
    def sysctl_parameters(self) -> tuple[str, ...]:
        return (self.sysctl and self.sysctl.parameters) or ()

    @property
    def switch_script(self) -> str:
        return (self.ovs and self.ovs.raw_config_script) or ""

    @property
    def registry_endpoint(self) -> str:
        return (self.containerd_config and self.containerd_config.registry_endpoint) or ""

    @property
    def scalable_functions(self) -> int:
        """The scalable functions that are created when the DPU starts: the setting PF_TOTAL_SF."""
        for each in self.nvconfig or ():
            for setting in each.parameters or ():
                if found := re.match(r"PF_TOTAL_SF=([0-9]{1,5})", setting):
                    return int(found[1])
        return 0

    def assignments(self) -> list[tuple[str, str]]:
        """The parameters for bf.cfg without the password, each as name and value. The spec has no faults."""
        found = map(_assignment, self.bfcfg_parameters or ())
        return [each for each in found if each is not None and each[0] != UBUNTU_PASSWORD]

    def password(self) -> str:
        """The hash of the password of the user ubuntu, empty for the default password that expires at once."""
        found = map(_assignment, self.bfcfg_parameters or ())
        return next((each[1] for each in found if each is not None and each[0] == UBUNTU_PASSWORD), "")

    def faults(self) -> Iterator[str]:
        """Why this flavor cannot be rendered: a sentence with its path for each fault."""
        for number, text in enumerate(self.bfcfg_parameters or ()):
            if _assignment(text) is None:
                name = quoted(text.partition("=")[0])  # the value may be a password
                yield f"bfcfgParameters[{number}]: {name} must be KEY=VALUE with one word as value"
        for number, text in enumerate((self.grub and self.grub.kernel_parameters) or ()):
            if not text.isprintable():
                yield f"grub.kernelParameters[{number}]: {quoted(text)} must be printable and one line"
        for number, text in enumerate(self.sysctl_parameters):
            if not text.isprintable() or "=" not in text:
                yield f"sysctl.parameters[{number}]: {quoted(text)} must be KEY=VALUE in one line"
        for number, each in enumerate(self.nvconfig or ()):
            if not each.devices:
                yield f"nvconfig[{number}].device: {quoted(each.device or '')} must be *, p0 or p1"
            for at, text in enumerate(each.parameters or ()):
                if not (_FIRMWARE_SETTING.fullmatch(text) and text.isprintable()):
                    yield f"nvconfig[{number}].parameters[{at}]: {quoted(text)} must be KEY=VALUE without white space"
        yield from self._faults_of_files()
        if not self.registry_endpoint.isprintable():
            yield "containerdConfig.registryEndpoint: must be printable"

    def _faults_of_files(self) -> Iterator[str]:
        for number, file in enumerate(self.config_files or ()):
            path, where = file.path or "", f"configFiles[{number}]"
            if file.is_written_at_install and not (path.startswith("/") and path.isprintable()):
                yield f"{where}.path: {quoted(path)} must begin with / and be printable"
            if file.permissions and not _MODE.fullmatch(file.permissions):
                yield f"{where}.permissions: {quoted(file.permissions)} must be octal, such as 0644"
            if file.operation not in (None, "", "override", "append"):
                yield f"{where}.operation: {quoted(file.operation)} must be override or append"


def _assignment(text: str) -> tuple[str, str] | None:
    """The name and value of KEY=VALUE. The value is one word of a shell, with or without quotes; nothing in it is
    expanded."""
    found = _ASSIGNMENT.fullmatch(text.strip())
    if found is None or "\0" in text:
        return None
    try:
        words = shlex.split(found[2], comments=False)
    except ValueError:
        return None
    return (found[1], words[0] if words else "") if len(words) <= 1 else None

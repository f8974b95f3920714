"""Which card a BMC manages: the names that BlueField-3 and -4 give their resources, and what is written on the card."""

from __future__ import annotations

from typing import NamedTuple

ROOT = "/redfish/v1"
MEDIA_FILES = {
    "BlueField_OS_Image_CPU_0": "file:///media/bf_arm_os/image/image.iso",
    "BlueField_OS_Config_CPU_0": "file:///media/bf_arm_os/config/config.iso",
}
"""The members of FirmwareInventory that take media of an installation, with the files that become of them."""


class Generation(NamedTuple):
    """The names of one generation of cards (DOCA Platform Framework 26.10)."""

    product: str
    model: str
    system: str
    manager: str
    chassis: str
    user: str
    """The user with the password of the factory."""
    firmware: tuple[str, ...]
    """The members of FirmwareInventory."""
    os_by_media: bool
    """Whether the operating system is installed from virtual media instead of by SimpleUpdate."""
    slots: tuple[str, ...]
    """The slots for virtual media."""


BLUEFIELD_3 = Generation(
    product="BlueField-3 DPU",
    model="BlueField-3 DPU",
    system="Bluefield",
    manager="Bluefield_BMC",
    chassis="Card1",
    user="root",
    firmware=("BMC_Firmware", "DPU_ATF", "DPU_BSP", "DPU_NIC", "DPU_OS", "DPU_UEFI"),
    os_by_media=False,
    slots=("Slot_0", "Slot_1"),
)
BLUEFIELD_4 = Generation(
    product="BlueField-4 DPU",
    model="BlueField-4 DPU",
    system="System_0",
    manager="BMC_0",
    chassis="BlueField_0",
    user="admin",
    firmware=("BlueField_FW_BMC_0", "BlueField_FW_CPU_0", "BlueField_FW_NIC_0", "DPU_OS"),
    os_by_media=True,
    slots=("IMAGE", "CONFIG"),
)

BLUEFIELD_4_MEDIA_STAGING = BLUEFIELD_4._replace(firmware=(*BLUEFIELD_4.firmware, *MEDIA_FILES))
"""A BlueField-4 whose BMC can also keep the media of an installation."""


class Identity(NamedTuple):
    """A card. Its interfaces have the addresses that follow `mac`."""

    serial: str
    mac: int = 0xA088C2_000000
    part_number: str = "900-9D3B6-00CV-AA0"
    psid: str = "MT_0000000884"
    generation: Generation = BLUEFIELD_3

    @property
    def system(self) -> str:
        return f"{ROOT}/Systems/{self.generation.system}"

    @property
    def manager(self) -> str:
        return f"{ROOT}/Managers/{self.generation.manager}"

    @property
    def chassis(self) -> str:
        return f"{ROOT}/Chassis/{self.generation.chassis}"

    @property
    def bundle(self) -> tuple[str, ...]:
        """The members of FirmwareInventory that a bundle updates; empty if the card takes no bundles."""
        return tuple(name for name in self.generation.firmware if name.startswith("BlueField_FW_"))

    @property
    def bmc_firmware(self) -> str:
        """The name of the BMC's firmware in the inventory."""
        return next(name for name in self.generation.firmware if "BMC" in name)

    def has(self, path: str) -> bool:
        """Whether a path is of this card: it names its system, manager or chassis, or none."""
        kind, _, rest = path.removeprefix(f"{ROOT}/").partition("/")
        own = {"Systems": self.generation.system, "Managers": self.generation.manager}
        own["Chassis"] = self.generation.chassis
        return kind not in own or rest.partition("/")[0] in ("", own[kind])

    def address(self, number: int) -> str:
        """The MAC address of an interface: 0 and 1 are ports, 2 is the BMC."""
        return (self.mac + number).to_bytes(6, "big").hex(":").upper()

    @property
    def uuid(self) -> str:
        text = f"{self.mac:032x}"
        return "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])

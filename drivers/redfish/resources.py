"""The resources of a BMC, as far as the plane reads them. A BMC may leave out any field, or return null for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from projections.resources.specs import JSON

ROOT = "/redfish/v1"
SERVICE_ROOT = f"{ROOT}/"
"""The service root. Redfish lets a BMC redirect requests for it that lack the slash."""


class Link(msgspec.Struct, frozen=True):
    """A reference to a resource."""

    path: str = msgspec.field(default="", name="@odata.id")


class Collection(msgspec.Struct, frozen=True):
    """A collection: links to its members, or whole members."""

    members: list[Link] = msgspec.field(default_factory=list, name="Members")


class Root(msgspec.Struct, frozen=True, rename="pascal"):
    """The service root, which every BMC returns without authentication."""

    product: str | None = None
    vendor: str | None = None
    systems: Link | None = None
    managers: Link | None = None
    chassis: Link | None = None
    tasks: Link | None = None
    update_service: Link | None = None
    session_service: Link | None = None
    account_service: Link | None = None

    @property
    def is_dpu(self) -> bool:
        return "bluefield" in (self.product or "").lower() or self.is_bluefield_4

    @property
    def is_bluefield_4(self) -> bool:
        """Whether the DPU is installed from virtual media, as of BlueField-4."""
        product = (self.product or "").upper()
        return "BLUEFIELD-4" in product or "BLUEFIELD 4" in product or product.startswith("B4")


class Session(msgspec.Struct, frozen=True, rename="pascal"):
    """A session. `context` is a text of the client that opened it."""

    id: str | None = None
    user_name: str | None = None
    context: str | None = None


class BootProgress(msgspec.Struct, frozen=True, rename="pascal"):
    last_state: str | None = None
    last_state_time: str | None = None
    oem_last_state: str | None = None


class BootOverride(msgspec.Struct, frozen=True):
    """The boot source of the next boots, instead of the usual one."""

    target: str | None = msgspec.field(default=None, name="BootSourceOverrideTarget")
    enabled: str | None = msgspec.field(default=None, name="BootSourceOverrideEnabled")


class System(msgspec.Struct, frozen=True, rename="pascal"):
    """The system of a DPU: its Arm cores with their operating system."""

    serial_number: str | None = None
    power_state: str | None = None
    last_reset_time: str | None = None
    boot_progress: BootProgress | None = None
    boot: BootOverride | None = None

    @property
    def boot_id(self) -> str:
        """A text that differs after each boot; empty if the BMC reports none. A boot id of the operating system is not
        visible to a BMC."""
        return self.last_reset_time or (self.boot_progress and self.boot_progress.last_state_time) or ""

    @property
    def is_up(self) -> bool:
        """Whether the operating system runs."""
        progress = self.boot_progress or BootProgress()
        return "OSRunning" in (progress.last_state or "") or progress.oem_last_state == "OsIsRunning"


class VirtualMedia(msgspec.Struct, frozen=True, rename="pascal"):
    """A slot in which a BMC presents an image as a medium."""

    inserted: bool | None = None
    image: str | None = None


class Payload(msgspec.Struct, frozen=True, rename="pascal"):
    """The request that started a task."""

    target_uri: str | None = None
    json_body: str | None = None

    @property
    def image_uri(self) -> str:
        try:
            body = msgspec.json.decode(self.json_body or "", type=dict[str, Any])
        except msgspec.DecodeError:
            return ""
        uri = body.get("ImageURI")
        return uri if isinstance(uri, str) else ""


class Message(msgspec.Struct, frozen=True, rename="pascal"):
    message: str | None = None


class Task(msgspec.Struct, frozen=True, rename="pascal"):
    """A task of the task service."""

    id: str | None = None
    path: str = msgspec.field(default="", name="@odata.id")
    task_state: str | None = None
    percent_complete: float | None = None
    messages: list[Message] = msgspec.field(default_factory=list)
    payload: Payload | None = None


class Software(msgspec.Struct, frozen=True, rename="pascal"):
    """An entry of the firmware inventory."""

    id: str | None = None
    version: str | None = None


class Chassis(msgspec.Struct, frozen=True, rename="pascal"):
    serial_number: str | None = None
    part_number: str | None = None
    asset_tag: str | None = None
    """The PSID of a BlueField."""


class LogEntry(msgspec.Struct, frozen=True, rename="pascal"):
    created: str | None = None
    severity: str | None = None
    message: str | None = None


class LogEntries(msgspec.Struct, frozen=True, rename="pascal"):
    members: list[LogEntry] = msgspec.field(default_factory=list)


class Request(msgspec.Struct, frozen=True):
    """A request that alters something."""

    method: str
    path: str
    body: JSON | None = None


def best_member(paths: Sequence[str], *names: str) -> str:
    """The member of a collection with one of these words in its id, else the first one; empty if there is none."""
    for name in names:
        for path in paths:
            if name in path.rstrip("/").rpartition("/")[2].lower():
                return path
    return paths[0] if paths else ""


def versions_text(versions: Mapping[str, str]) -> str:
    """Versions in one line, for facts and messages."""
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))

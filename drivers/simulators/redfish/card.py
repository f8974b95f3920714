"""A BlueField card as its BMC sees it: power, boot, mode, locks, firmware and the installation of an image.

State and a clock only: an installation is a record of its times, so what is read depends on the present time and not on
how often it is read. The image itself is fetched by the server of the BMC, which reports the end of the transfer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from drivers.simulators.redfish.faults import Outcome, Outcomes
from drivers.simulators.redfish.identity import MEDIA_FILES, Identity
from drivers.simulators.redfish.tasks import Task

DPU, NIC = "DpuMode", "NicMode"
OS, BSP, BUNDLE = "DPU_OS", "DPU_BSP", "Pending_Bundle"
FETCHED_PERCENT = 20
"""The progress of an installation whose image has arrived."""
SEL_MAX = 200
MEDIA_TARGETS = ("Cd", "Usb")
"""The boot sources that are the virtual media."""


class Durations(NamedTuple):
    """How long the card takes, in seconds. A BlueField-3 writes its flash for 10 minutes and boots for 3."""

    flash_s: float = 4.0
    boot_s: float = 2.0
    bmc_restart_s: float = 2.0


QUICK_DURATIONS = Durations()


class Fetch(NamedTuple):
    """A transfer that the server is to run. Its number identifies it. `seed_url` is that of a configuration, if an
    installation from virtual media has one."""

    number: int
    url: str
    target: str
    seed_url: str = ""


class Image(NamedTuple):
    """An image that arrived, with its versions by part."""

    os: str
    parts: dict[str, str]


class LogLine(NamedTuple):
    """An entry of the system event log."""

    id: int
    time: datetime
    text: str
    severity: str


@dataclass
class Work:
    """An installation or an update. `task` is None for one from virtual media."""

    task: Task | None
    target: str
    fetch: int
    outcome: Outcome
    fetched: datetime | None = None
    image: Image | None = None


@dataclass
class Media:
    """A slot for virtual media."""

    image: str = ""
    is_write_protected: bool = True


@dataclass
class Card:
    """The state. Changes that wait for a boot are in `pending_*`; `power_cycle_host` applies those of the host."""

    identity: Identity
    now: Callable[[], datetime]
    rng: Random
    durations: Durations
    outcomes: Outcomes
    media_staging_outcomes: Outcomes
    """How the staging of media goes."""
    powered: bool = True
    mode: str = DPU
    pending_mode: str = ""
    host_rshim: bool = True
    bmc_rshim: bool = True
    privilege: str = "Privileged"
    pending_privilege: str = ""
    secure_boot: bool = True
    pending_secure_boot: bool | None = None
    bios: dict[str, object] = field(
        default_factory=lambda: {"InternalCPUModel": "Embedded", "BootTimeout": 0, "DisableSpmi": False}
    )
    pending_bios: dict[str, object] = field(default_factory=dict)
    boot_target: str = "None"
    boot_enabled: str = "Disabled"
    boot_mode: str = "UEFI"
    firmware: dict[str, str] = field(default_factory=dict)
    pending_firmware: dict[str, str] = field(default_factory=dict)
    activated: set[str] = field(default_factory=set)
    """Pending firmware that the next reset of the whole card makes active."""
    os: str = ""
    media: dict[str, Media] = field(default_factory=dict)
    log: list[LogLine] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    work: Work | None = None
    pulls: bool = True
    """Whether the BMC takes updates from URLs."""
    boots: int = 1
    media_boots: int = 0
    """The number of installations that a boot from virtual media has begun."""

    def __post_init__(self) -> None:
        self.booted = self.now() - timedelta(days=1)
        self._fetched = 0
        self._logged = 0
        self.media = self.media or {name: Media() for name in self.identity.generation.slots}
        for name in self.identity.generation.firmware:
            self.firmware.setdefault(name, "" if name in MEDIA_FILES else f"factory-{name.lower()}-1.0")
        self.os = self.os or self.firmware[OS]

    @property
    def is_busy(self) -> bool:
        return self.work is not None

    def install(self, url: str, target: str, task: Task | None, seed_url: str = "") -> None:
        """Begin to fetch an image and to write it; `url` is empty if its content was pushed."""
        outcome = (self.media_staging_outcomes if target in MEDIA_FILES else self.outcomes).next()
        self._fetched += 1
        self.work = Work(task, target, self._fetched, outcome)
        if url:
            self.fetches.append(Fetch(self._fetched, url, target, seed_url))
        if not self.bmc_rshim and target == OS:
            self._fail("the rshim of the BMC is not enabled")

    def fetched(self, number: int, image: Image | None, fault: str = "") -> None:
        """The end of a transfer: an image, or what is wrong."""
        self.settle()
        work = self.work
        if work is None or work.fetch != number:
            return
        if image is None:
            self._fail(fault)
            return
        work.fetched, work.image = self.now(), image
        if work.target == OS and work.outcome.kind != "lie":
            self.os = ""  # from here on, no operating system could boot
            self.log_line("DPU OS installation started", "OK")

    def has_file(self, url: str) -> bool:
        """Whether the BMC keeps the file of a medium."""
        return any(self.firmware.get(name) for name, file in MEDIA_FILES.items() if file == url)

    def settle(self) -> None:
        """Advance to the present time."""
        work = self.work
        if work is None or work.fetched is None:
            if work is not None and work.task is not None:
                work.task.percent = max(work.task.percent, FETCHED_PERCENT // 2)
            return
        share = (self.now() - work.fetched).total_seconds() / max(self.durations.flash_s, 1e-6)
        percent = FETCHED_PERCENT + int((100 - FETCHED_PERCENT) * min(share, 1.0))
        outcome = work.outcome
        is_struck = percent >= outcome.percent and outcome.kind in ("fail", "stall")
        if is_struck and outcome.kind == "fail":
            if work.task is not None:
                work.task.percent = outcome.percent
            written = max(0, outcome.percent - FETCHED_PERCENT) / (100 - FETCHED_PERCENT)
            self._fail(outcome.text, work.fetched + timedelta(seconds=self.durations.flash_s * written))
        elif share < 1 or is_struck:
            if work.task is not None:
                work.task.percent = min(percent, outcome.percent if is_struck else 99)
        else:
            self._finish(work, work.fetched + timedelta(seconds=self.durations.flash_s))

    def _finish(self, work: Work, ended: datetime) -> None:
        assert work.image is not None
        self.work = None
        if work.outcome.kind != "lie":
            if work.target == OS:
                self.os = work.image.os
                self.firmware.update({OS: work.image.os, **work.image.parts})
                self._boot(ended)
            elif work.target in MEDIA_FILES:
                self.firmware[work.target] = work.image.os
            else:
                names = self.identity.bundle if work.target == BUNDLE else (work.target,)
                self.pending_firmware.update(dict.fromkeys(names, work.image.os))
        if work.task is not None:
            work.task.end("Completed", ended)

    def _fail(self, text: str, ended: datetime | None = None) -> None:
        work, self.work = self.work, None
        if work is not None and work.task is not None:
            work.task.end("Exception", ended or self.now(), text)
        self.log_line(text, "Critical", ended)

    def reset(self, kind: str) -> None:
        """Reset or switch the Arm cores. An installation does not survive it."""
        self.settle()
        if self.work is not None and self.work.target == OS:
            self._fail("the DPU was reset during the installation")
        if kind in ("ForceOff", "GracefulShutdown"):
            self.powered = False
            return
        if kind == "On" and self.powered:
            return
        self.powered = True
        self._boot(self.now())

    def lose_power(self) -> None:
        """Cut the power of the card and give it back: the Arm cores and the BMC start again."""
        self.settle()
        self.work = None
        self.log_line("12V_ATX: Lower Critical going low", "Critical")
        self._boot(self.now())

    def power_cycle_host(self) -> None:
        """Power cycle the host, and the whole card with it: changes of the mode and activated firmware take effect."""
        self._use_firmware(self.activated)
        self.mode, self.pending_mode = self.pending_mode or self.mode, ""
        self.privilege, self.pending_privilege = self.pending_privilege or self.privilege, ""
        self.reset("ForceRestart")

    def restart_bmc(self) -> None:
        """What a restart of the BMC does to the card: an update ends, media are gone, and pushed firmware becomes
        active. That of a bundle waits for its activation."""
        self.settle()
        self.work = None
        for media in self.media.values():
            media.image = ""
        self._use_firmware(set(self.pending_firmware) - set(self.identity.bundle))

    def _use_firmware(self, names: set[str]) -> None:
        for name in sorted(names & set(self.pending_firmware)):
            self.firmware[name] = self.pending_firmware.pop(name)
        self.activated -= names

    def _boot(self, time: datetime) -> None:
        self.booted, self.boots = time, self.boots + 1
        self.bios.update(self.pending_bios)
        self.pending_bios.clear()
        if self.pending_secure_boot is not None:
            self.secure_boot, self.pending_secure_boot = self.pending_secure_boot, None
        slot, *others = self.media.values()
        if self.boot_target in MEDIA_TARGETS and self.boot_enabled != "Disabled" and slot.image:
            self.media_boots += 1
            self.install(slot.image, OS, None, others[0].image)
        if self.boot_enabled == "Once":
            self.boot_target, self.boot_enabled = "None", "Disabled"

    def boot_progress(self) -> tuple[str, str]:
        """LastState and OemLastState of BootProgress."""
        if not self.powered:
            return "None", "PowerOff"
        share = (self.now() - self.booted).total_seconds() / max(self.durations.boot_s, 1e-6)
        if share < 0.4:
            return "PrimaryProcessorInitializationStarted", "BL2"
        if share < 0.8 or not self.os or (self.work is not None and self.work.task is None):
            return "SystemHardwareInitializationComplete", "UEFI"
        return ("OSBootStarted", "OsStarting") if share < 1 else ("OSRunning", "OsIsRunning")

    def log_line(self, text: str, severity: str, time: datetime | None = None) -> None:
        """Append to the system event log, which has a limited length."""
        self._logged += 1
        self.log.append(LogLine(self._logged, time or self.now(), text, severity))
        del self.log[:-SEL_MAX]

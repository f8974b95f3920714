"""The next move of an installation or of a reboot, as it follows from the log and from what the device reports.

An activation boots the device into an image. It must never be requested twice, although its answer may be lost and the
plane may stop. So the attempt appends an event before the request, with the number of reboots of the device and the
version that it runs, and another one when the device reboots:

    "" -> asked -> the device reboots -> it has rebooted -> it runs the image

A transfer needs no event: a device that has the package says so in its answer to the request for the transfer. Counts
of reboots are optional in gNOI. Without them, a reboot is proved by the time in which it was seen, or by a version that
has changed.
"""

from __future__ import annotations

import re
import zlib
from typing import Literal, NamedTuple, TypeAlias

_ASKED = re.compile(r"reboot asked by attempt (\d+) at boot (\d+) from ([0-9a-f]{8})")
_SEEN = re.compile(r"reboot of attempt (\d+) at boot (\d+) from ([0-9a-f]{8})")


class BootTiming(NamedTuple):
    """How long a device may take, in seconds."""

    settle_s: float = 60.0
    """From a request until it reports the reboot, and from a reboot until it reports what it runs."""
    boot_s: float = 1_800.0
    """For one reboot. A device may write the image within it; DPF waits as long."""
    validation_s: float = 300.0
    """From the last chunk of a package until it is validated."""


class Asked(NamedTuple):
    """A reboot may have been asked for by this attempt. `boots` and `before` are the count of reboots and the mark of
    the running version from before it. `is_seen` says whether the device was seen to reboot since."""

    attempt: int
    boots: int
    before: str
    is_seen: bool = False

    def text(self) -> str:
        words = "reboot of" if self.is_seen else "reboot asked by"
        return f"{words} attempt {self.attempt} at boot {self.boots} from {self.before}"


class Order(NamedTuple):
    """The wanted version, empty for any. `disowned` is the last attempt whose task has failed."""

    version: str
    disowned: int


class Seen(NamedTuple):
    """The state of the device, as of one read. `failure` is why its last reboot failed, or why it does not run what was
    activated. `quiet_s` is the time for which this attempt has seen no change of all this. `is_answered` says whether
    the device has accepted the request of this attempt."""

    is_active: bool
    boots: int
    version: str
    failure: str
    quiet_s: float
    is_answered: bool


class Ask(NamedTuple):
    """Request the reboot, after an event about it was appended."""


class Wait(NamedTuple):
    """Read again. `logged` is the event that the log must have by then."""

    logged: Asked


class Done(NamedTuple):
    """The device has rebooted, and runs what it should."""


class Failed(NamedTuple):
    """It failed, or cannot begin. The kind is that of the failure of a step."""

    kind: Literal["transient", "device"]
    message: str


Move: TypeAlias = Ask | Wait | Done | Failed


def next_move(order: Order, logged: Asked | None, seen: Seen, timing: BootTiming) -> Move:
    """The next move. It never raises."""
    if logged is None or logged.attempt <= order.disowned:
        return Failed("transient", "device: it reboots, and nothing here asked for it") if seen.is_active else Ask()
    if seen.is_active:
        if seen.quiet_s > timing.boot_s:
            return Failed("device", f"task: the reboot has not ended after {timing.boot_s:g} s")
        return Wait(logged._replace(is_seen=True))
    if logged.is_seen or seen.boots != logged.boots:
        return _after_reboot(order, logged, seen, timing)
    if order.version and runs(seen.version, order.version) and mark_of(seen.version) != logged.before:
        return Done()
    if seen.quiet_s < timing.settle_s:
        return Wait(logged)
    if seen.is_answered:
        return Failed("device", f"task: the device accepted the request, and did not reboot; it runs {seen.version}")
    return Ask()  # the request never arrived: its connection has ended


def _after_reboot(order: Order, logged: Asked, seen: Seen, timing: BootTiming) -> Move:
    if not order.version or (runs(seen.version, order.version) and not seen.failure):
        return Done() if not seen.failure else Failed("device", f"task: the reboot failed: {seen.failure}")
    if seen.failure:
        return Failed("device", f"image: the device did not boot {order.version}: {seen.failure}")
    if seen.quiet_s < timing.settle_s:
        return Wait(logged)
    return Failed("device", f"image: the device runs {seen.version} after {order.version} was activated")


def runs(version: str, wanted: str) -> bool:
    """Whether a version that a device reports is the wanted one. It may name its configuration behind the image."""
    return version.partition(";")[0] == wanted


def mark_of(version: str) -> str:
    """A text of fixed length for a version."""
    return f"{zlib.crc32(version.encode()):08x}"


def logged_of(text: str) -> Asked | None:
    """The last event about a reboot, read from its text (`text()`); None if no reboot was requested."""
    if found := _ASKED.fullmatch(text):
        return Asked(int(found[1]), int(found[2]), found[3])
    if found := _SEEN.fullmatch(text):
        return Asked(int(found[1]), int(found[2]), found[3], is_seen=True)
    return None

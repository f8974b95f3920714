"""The next move of an installation from virtual media, as it follows from the log and from what the BMC reports.

A BlueField-4 has no task for it: the BMC presents an image as a medium, the DPU boots it once, and the installer on it
writes the operating system. Everything before that boot may be repeated, so only the restart needs an event before it:

    media inserted -> boot override set -> boot asked -> the DPU has booted since -> its versions are those of the image

A medium that another attempt has inserted is replaced: the token in its URL may expire during the installation. A boot
that consumed the override, with the operating system up and the versions of the image, proves the installation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from drivers.redfish.resources import versions_text
from drivers.redfish.update_moves import SETTLE_S, mark_of, target_of

RESTART_SHOWN_S = 60.0
"""Longest time from a restart until a BMC reports it."""
INSTALL_S = 2_700.0
"""Longest time from the boot of the media until the operating system runs. The installer shows no progress."""
_ASKED = re.compile(r"boot of media asked by attempt (\d+) after boot (\S*)")


class BootAsked(NamedTuple):
    """A restart may have been sent by this attempt. `boot` is the mark of the boot before it."""

    attempt: int
    boot: str

    def text(self) -> str:
        return f"boot of media asked by attempt {self.attempt} after boot {self.boot}"


class Slot(NamedTuple):
    """A slot for a medium, with the URL of what is in it. A BMC may not report the URL."""

    path: str
    is_inserted: bool = False
    image: str = ""


class SeenMedia(NamedTuple):
    """The state of the BMC, as of one read. `is_overridden` says whether the next boot is that of the media. `quiet_s`
    is the time for which this attempt has seen no change of the boot and of `is_up`, and `boots` how many boots it has
    seen begin."""

    slots: Mapping[str, Slot]
    is_overridden: bool
    boot_id: str
    is_up: bool
    versions: Mapping[str, str]
    quiet_s: float
    boots: int = 0


class MediaOrder(NamedTuple):
    """The wanted installation: the URL for each slot. `attempt` is the running one, and `disowned` the last one whose
    installation has failed. `versions` are those of the image, as far as they are known, and `before` those of the DPU
    before it."""

    urls: Mapping[str, str]
    attempt: int
    disowned: int
    versions: Mapping[str, str] = {}
    before: Mapping[str, str] = {}


class Eject(NamedTuple):
    """Remove the medium of a slot."""

    slot: str


class Insert(NamedTuple):
    """Insert a medium into a slot."""

    slot: str
    url: str


class Override(NamedTuple):
    """Let the next boot be that of the media."""


class Boot(NamedTuple):
    """Restart the DPU, after an event about it was appended."""

    asked: BootAsked


class MediaWait(NamedTuple):
    """Look again. `is_booted` says whether the media have been booted."""

    is_booted: bool = False


class Installed(NamedTuple):
    """The DPU runs the image; its media can be removed."""


class MediaFailed(NamedTuple):
    """The installation failed by the device."""

    message: str


MediaMove: TypeAlias = Eject | Insert | Override | Boot | MediaWait | Installed | MediaFailed


def next_media_move(
    order: MediaOrder, logged: BootAsked | None, seen: SeenMedia, sent: Collection[MediaMove]
) -> MediaMove:
    """The next move; `sent` are those that this attempt has made. It never raises."""
    if logged is None or logged.attempt <= order.disowned:
        return _prepared(order, seen, sent)
    if not _has_booted(logged, seen):
        if seen.quiet_s < RESTART_SHOWN_S:
            return MediaWait()
        if logged.attempt == order.attempt:
            return MediaFailed("image: the BMC accepted a restart, and the DPU did not restart")
        return _prepared(order, seen, sent)  # the request did not arrive: it belonged to a session that has ended
    differing = [name for name, version in order.versions.items() if seen.versions.get(name, version) != version]
    if seen.is_up and not seen.is_overridden and not differing and _is_proved(order, seen):
        return Installed()
    if seen.quiet_s < (SETTLE_S if seen.is_up else INSTALL_S):
        return MediaWait(is_booted=True)
    if not seen.is_up:
        return MediaFailed("image: the operating system does not run after the boot of the media")
    if seen.is_overridden:
        return MediaFailed("image: the DPU has restarted without booting its media")
    has = versions_text({name: seen.versions[name] for name in differing})
    wanted = versions_text({name: order.versions[name] for name in differing})
    return MediaFailed(f"image: after the boot of the media the DPU has {has}, but the image has {wanted}")


def _prepared(order: MediaOrder, seen: SeenMedia, sent: Collection[MediaMove]) -> MediaMove:
    """The next move before the restart."""
    for name, url in order.urls.items():
        slot = seen.slots[name]
        insert = Insert(name, url)
        if insert not in sent and slot.is_inserted:
            if Eject(name) in sent:
                return MediaFailed(f"media: the BMC accepted to eject the medium of {name}, and it is still inserted")
            return Eject(name)
        if insert not in sent:
            return insert
        if not slot.is_inserted:
            return MediaFailed(f"media: the BMC accepted a medium for {name}, and it is not inserted")
        if slot.image and target_of(slot.image) != target_of(url):
            return MediaFailed(f"media: the BMC has another medium in {name} than the one that was inserted")
    if not seen.is_overridden:
        if Override() in sent:
            return MediaFailed("media: the BMC accepted a boot from media, and does not report it")
        return Override()
    return Boot(BootAsked(order.attempt, mark_of(seen.boot_id)))


def _has_booted(logged: BootAsked, seen: SeenMedia) -> bool:
    """Whether the DPU has booted since the restart was asked for. Where a BMC reports no boots, the override shows it:
    a boot consumes it."""
    return mark_of(seen.boot_id) != logged.boot if seen.boot_id else not seen.is_overridden


def _is_proved(order: MediaOrder, seen: SeenMedia) -> bool:
    """Whether the running system is the installed one and not the installer on the media: its versions have become
    those of the image, its boot is the second one, or it has been running for long."""
    has_changed = any(order.before.get(name) != version for name, version in order.versions.items())
    return has_changed or seen.boots >= 2 or seen.quiet_s >= SETTLE_S


def logged_boot(text: str) -> BootAsked | None:
    """The last event about an installation from media, read from its text (`text()`)."""
    found = _ASKED.fullmatch(text)
    return BootAsked(int(found[1]), found[2]) if found else None

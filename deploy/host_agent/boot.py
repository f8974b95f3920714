"""The boot that a host is in, from procfs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from eventstore.errors import FatalError


class Boot(NamedTuple):
    """A boot of a host: the kernel's random id of it, and the time since it began."""

    id: str
    uptime_ms: int


def read_boot(proc: Path) -> Boot:
    """The present boot. `proc` is the root of procfs. Raises FatalError: without its boot id, a host cannot be rebooted
    exactly once."""
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text().strip()
        uptime_s = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError) as error:
        raise FatalError(f"proc: the boot id and uptime cannot be read from {proc}: {error}") from error
    return Boot(boot_id, round(uptime_s * 1_000))

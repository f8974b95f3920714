"""The first root file system of the guest: busybox, the modules, and a script that hands over to this machine's files.

The guest sees the files of this machine read-only, so the Python and the tree of a test are at the same paths in it.
Only /dev, /proc, /run and /sys are its own.
"""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /host
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    /bin/busybox insmod $module || echo "init: $module was not loaded"
done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /host
/bin/busybox mount -t devtmpfs dev /host/dev
/bin/busybox mount -t proc proc /host/proc
/bin/busybox mount -t sysfs sys /host/sys
/bin/busybox mount -t tmpfs run /host/run
/bin/busybox mount -t debugfs debug /host/sys/kernel/debug
/bin/busybox chroot /host /sbin/ip link set lo up
exec /bin/busybox chroot /host COMMAND
"""


class Entry(NamedTuple):
    """A file of an archive. `data` is None for a folder."""

    name: str
    data: bytes | None


def write_initramfs(path: Path, busybox: Path, modules: Sequence[Path], command: Sequence[str]) -> None:
    """Write the archive. `command` is process 1 of the guest after the hand-over."""
    init = INIT.replace("COMMAND", " ".join(command))
    entries = [Entry(name, None) for name in ("bin", "dev", "host", "modules", "proc", "sys")]
    entries += [Entry("bin/busybox", busybox.read_bytes()), Entry("init", init.encode())]
    entries += [Entry(f"modules/{each.name}", each.read_bytes()) for each in modules]
    path.write_bytes(gzip.compress(b"".join(_archived(entries)), compresslevel=1))


def _archived(entries: Sequence[Entry]) -> Iterator[bytes]:
    """The entries in the format `newc` of cpio, which the kernel reads."""
    for number, (name, data) in enumerate(entries, 1):
        kind = stat.S_IFDIR if data is None else stat.S_IFREG
        yield from _record(number, name, kind | 0o755, data or b"")
    yield from _record(0, "TRAILER!!!", 0, b"")


def _record(number: int, name: str, mode: int, data: bytes) -> Iterator[bytes]:
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    yield _padded(b"070701" + b"".join(f"{field:08x}".encode() for field in fields) + name.encode() + b"\0")
    yield _padded(data)


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)

"""QEMU, Debian's kernel and netdevsim for the guest, from Debian's packages in a cache folder outside the tree.

QEMU comes from bookworm-backports: its model of Intel's 82576 (igb) has SR-IOV, which QEMU 7.2 of Debian 12 lacks. The
kernel is that of Debian 12. It has no netdevsim, which is compiled from Debian's source of the same kernel.

apt-get resolves and verifies the packages in a state of its own and nothing is installed, so any machine with apt-get,
Debian's keyring, gcc and make can do this. The folder of one recipe is filled at a temporary path and renamed, under a
lock: a kernel and the modules in it always belong together, and a newer kernel of Debian needs no change here.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.kafka.jars import cache_folder
from tests.support.requirements import missing_requirement

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = "".join(
    f"deb [signed-by={KEYRING}] http://deb.debian.org/{archive} {suite} main\n"
    for archive, suite in (
        ("debian", "bookworm"),
        ("debian", "bookworm-backports"),
        ("debian-security", "bookworm-security"),
    )
)
BACKPORTS = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
KERNEL = ("linux-image-amd64", "linux-headers-amd64", "linux-source-6.1", "busybox-static")
MODULES = (
    *("virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p"),
    *("igb", "igbvf", "bridge", "crc32c_generic", "openvswitch"),
)
"""The modules of Debian's kernel that the guest loads, in this order. What they depend on is found."""
COMMAND_S = 900


class GuestParts(NamedTuple):
    """What a guest is started with. `modules` are in the order in which they load."""

    qemu: Sequence[str]
    kernel: Path
    busybox: Path
    modules: Sequence[Path]


def guest_parts() -> GuestParts:
    """The parts of a guest, made first if the cache lacks them: a minute, and 315 MB of downloads."""
    folder = cache_folder(os.environ) / f"guest-{_digest()}"
    if not folder.is_dir():
        missing = [name for name in ("apt-get", "dpkg-deb", "gcc", "make", "strip") if shutil.which(name) is None]
        if platform.machine() != "x86_64":
            missing_requirement("a guest needs a processor of type x86_64")
        if missing or not KEYRING.exists():
            missing_requirement(f"a guest needs {' and '.join(missing) or KEYRING}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent, prefix="guest-making-") as work:
                    _make(Path(work)).rename(folder)
    root = folder / "root"
    libraries = ":".join(str(root / each) for each in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"))
    loader = (str(root / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), "--library-path", libraries)
    data = [word for name in ("qemu", "seabios") for word in ("-L", str(root / "usr/share" / name))]
    return GuestParts(
        qemu=(*loader, str(root / "usr/bin/qemu-system-x86_64"), *data),
        kernel=folder / "vmlinuz",
        busybox=folder / "busybox",
        modules=sorted((folder / "modules").iterdir()),
    )


def _digest() -> str:
    """Changes with this recipe."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def _make(work: Path) -> Path:
    """The finished folder, inside of `work`."""
    made, build = work / "made", work / "build"
    _unpack(_downloaded(work, [f"{name}/bookworm-backports" for name in BACKPORTS]), made / "root")
    _unpack(_downloaded(work, KERNEL), build)
    (kernel,) = (build / "boot").glob("vmlinuz-*")
    modules = build / "lib/modules" / kernel.name.removeprefix("vmlinuz-")
    shutil.copy(kernel, made / "vmlinuz")
    shutil.copy(build / "bin/busybox", made / "busybox")
    shutil.copy(_netdevsim(build, modules.name), modules)
    (made / "modules").mkdir()
    for number, path in enumerate(_in_loading_order(modules, (*MODULES, "netdevsim"))):
        shutil.copy(path, made / "modules" / f"{number:02}-{path.name}")
    return made


def _downloaded(work: Path, names: Sequence[str]) -> list[Path]:
    """The files of packages and of everything that they depend on."""
    apt = work / "apt"
    for folder in ("state/lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(SOURCES)
    settings = {
        "Dir::State": apt / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": apt,
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Debug::NoLocking": 1,
        "APT::Architecture": "amd64",
        "APT::Install-Recommends": 0,
        "APT::Sandbox::User": "",
        "Acquire::Retries": 3,
    }
    command = ("apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items()))
    _run(*command, "update")
    before = {*(apt / "archives").glob("*.deb")}
    _run(*command, "install", "--yes", "--download-only", *names)
    return sorted({*(apt / "archives").glob("*.deb")} - before)


def _unpack(packages: Sequence[Path], root: Path) -> None:
    root.mkdir(parents=True)
    for package in packages:
        _run("dpkg-deb", "--extract", str(package), str(root))


def _netdevsim(build: Path, release: str) -> Path:
    """The module, compiled with the headers of the kernel."""
    headers, kbuild = build / "usr/src" / f"linux-headers-{release}", build / "usr/lib/linux-kbuild-6.1"
    common = headers.with_name(f"linux-headers-{release.rpartition('-')[0]}-common")
    for makefile in headers.glob("Makefile"):
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{build}/usr/src/"))
    for folder in (headers, common):
        for name in ("scripts", "tools"):
            if (link := folder / name).is_symlink():
                link.unlink()
                link.symlink_to(kbuild / name)
    source = build / "netdevsim"
    with (
        lzma.open(build / "usr/src/linux-source-6.1.tar.xz") as packed,
        tarfile.open(fileobj=packed, mode="r|") as tree,
    ):
        for member in tree:
            if member.name.startswith("linux-source-6.1/drivers/net/netdevsim/") and member.isfile():
                member.name = Path(member.name).name
                tree.extract(member, source, filter="data")
    _run("make", "-C", str(headers), f"M={source}", "CONFIG_NETDEVSIM=m", "CONFIG_PSAMPLE=m", "modules")
    _run("strip", "--strip-debug", str(source / "netdevsim.ko"))
    return source / "netdevsim.ko"


def _in_loading_order(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of modules, each behind the modules that it depends on. A name that is not there is in the kernel."""
    files = {path.stem.replace("-", "_"): path for path in folder.rglob("*.ko")}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order or name not in files:
            return
        found = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for needed in found[1].decode().split(",") if found else ():
            add(needed.replace("-", "_"))
        order[name] = files[name]

    for name in names:
        add(name)
    return [*order.values()]


def _run(*command: str) -> None:
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMMAND_S)
    if ran.returncode != 0:
        print(ran.stdout[-4_000:], ran.stderr[-4_000:], file=sys.stderr)
        raise RuntimeError(f"{command[0]} ended with status {ran.returncode}: {ran.stderr[-500:]}")

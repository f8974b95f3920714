"""A BMC that others wrote: OpenStack's sushy-emulator, over HTTPS, with a password and without sessions or tasks.

Its system has power, secure boot and virtual media, and none of NVIDIA's extensions. It needs Flask and others, which
the plane does not, so it has an environment of its own in the cache folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from deploy.kafka.jars import cache_folder
from deploy.tls.self_signed import self_signed
from tests.support.child_programs import ChildPrograms, free_ports

PACKAGE = "sushy-tools==2.2.0"
INSTALL_S = 240.0
START_S = 120.0
HOST, USER, PASSWORD = "127.0.0.1", "root", "a password of the plane"
_HASH = "$2b$04$jNJ5dZWJF7IGI8x5qfhDQ.lBrpaSThgKCUp/fYHy6JYulAwCxUh7u"
"""That of the password, as the emulator reads it."""


class Emulator(NamedTuple):
    """A running emulator: its address as the plane has it, and the file with its requests."""

    address: str
    output: Path

    def requests(self, method: str, end: str) -> int:
        """The number of requests of this method for paths with this end."""
        lines = self.output.read_text(errors="replace").splitlines()
        return sum(f"{method} /redfish/v1/" in line and f"{end} HTTP/" in line for line in lines)


def emulator_program() -> Path:
    """The program, which is installed if the cache lacks it."""
    root = cache_folder(os.environ) / "sushy-emulator"
    environment = root / PACKAGE
    if not environment.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with (root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not environment.is_dir():
                fresh = root / "fresh"
                shutil.rmtree(fresh, ignore_errors=True)
                subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True, timeout=INSTALL_S)
                command = [str(fresh / "bin/python"), "-m", "pip", "install", "--quiet", PACKAGE]
                subprocess.run(command, check=True, timeout=INSTALL_S)
                fresh.rename(environment)
    return environment / "bin/python"


@asynccontextmanager
async def sushy_emulator(folder: Path) -> AsyncIterator[Emulator]:
    """The emulator with one system. It ends with the context."""
    program = await asyncio.to_thread(emulator_program)
    (port,) = free_ports(HOST, 1)
    cert, key = self_signed(folder, [HOST], datetime.now(UTC))
    users, config = folder / "users", folder / "emulator.py"
    users.write_text(f"{USER}:{_HASH}\n")
    settings: dict[str, object] = {
        "SUSHY_EMULATOR_LISTEN_IP": HOST,
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_SSL_CERT": str(cert),
        "SUSHY_EMULATOR_SSL_KEY": str(key),
        "SUSHY_EMULATOR_AUTH_FILE": str(users),
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FEATURE_SET": "full",
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
    }
    config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    programs = ChildPrograms(folder)
    programs.start("emulator", str(program), "-m", "sushy_tools.emulator.main", "--config", str(config))
    try:
        async with asyncio.timeout(START_S):
            while not await _listens(port):
                programs.raise_if_ended()
                await asyncio.sleep(0.1)
        yield Emulator(f"redfish://{HOST}:{port}", folder / "emulator.log")
    finally:
        programs.stop()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True

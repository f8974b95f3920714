"""The probe of an image finds each process by its own flags, variables and file, with TLS and without."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.cli.processes.healthcheck import fault, main, serve_arguments, serving_processes
from deploy.kafka.brokers import ports_for
from tests.support.certs import CertIssuer
from tests.support.planes import started

LISTENERS = ("listen", "http", "agents")


def addresses() -> dict[str, str]:
    return {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, ports_for(3, None), strict=True)}


def by_flags(folder: Path) -> tuple[list[str], dict[str, str]]:
    flags = [word for name, value in addresses().items() for word in (f"--{name}", value)]
    return ["--data", str(folder / "plane"), *flags], {}


def by_environment(folder: Path) -> tuple[list[str], dict[str, str]]:
    given = {f"DPUPLANE_{name.upper()}": value for name, value in addresses().items()}
    return [], {"DPUPLANE_DATA": str(folder / "plane"), **given}


def by_file(folder: Path) -> tuple[list[str], dict[str, str]]:
    """A config file with a relative path. A flag overrides one of its settings."""
    text = "".join(f"{name}: {value}\n" for name, value in addresses().items())
    (folder / "plane.yaml").write_text(f"{text}data: {folder / 'plane'}\ntopic_prefix: lab\n")
    return ["--config", os.path.relpath(folder / "plane.yaml"), "--topic-prefix", "other", "--no-decisions"], {}


def with_tls(folder: Path) -> tuple[list[str], dict[str, str]]:
    files = CertIssuer(folder).issue("plane/local").settings
    flags, _ = by_flags(folder)
    return flags, {f"DPUPLANE_{name.upper()}": str(path) for name, path in files.items()}


Configured = Callable[[Path], tuple[list[str], dict[str, str]]]


@pytest.mark.parametrize("configured", [by_flags, by_environment, by_file, with_tls])
async def test_a_process_is_found_however_it_is_configured(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags, environment = configured(tmp_path)
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        async with started("serve", *flags) as process:
            for name in environment:
                patched.delenv(name)  # the probe must read the environment of the process, not its own
            pid = process.child.pid
            assert pid in serving_processes()
            assert await asyncio.to_thread(main, [str(pid)]) == ""
            assert await process.stop() == 0
            assert f"process {pid}: " in await asyncio.to_thread(main, [str(pid)]), "an ended process is not ready"


def process_of(proc: Path, pid: int, *words: str, environment: str = "") -> Path:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / "environ").write_text(environment)
    return folder


def test_only_serve_counts_as_a_process_of_the_plane(tmp_path: Path) -> None:
    program = "/opt/application/bin/dpuplane"
    process_of(tmp_path, 1, "tini", "--", "dpuplane", "serve", "--data", "x")
    process_of(tmp_path, 7, "/opt/dpuplane/bin/python3", program, "serve", "--data", "plane")
    process_of(tmp_path, 8, "/opt/dpuplane/bin/python3", program, "status")
    process_of(tmp_path, 9, "grep", "serve", program)
    process_of(tmp_path, 10)
    (tmp_path / "self").mkdir()
    assert serving_processes(tmp_path) == [1, 7]
    assert serve_arguments(7, tmp_path) == ["--data", "plane"]
    assert serve_arguments(11, tmp_path) is None
    shutil.rmtree(tmp_path / "7")
    assert serving_processes(tmp_path) == [1]


def test_a_process_with_wrong_settings_or_without_a_listener_is_not_ready(tmp_path: Path) -> None:
    process_of(tmp_path, 7, "dpuplane", "serve", "--role", "boss")
    assert "process 7: role: 'boss' must be one of" in fault(7, tmp_path)
    (port,) = ports_for(1, None)
    process_of(tmp_path, 8, "dpuplane", "serve", environment=f"DPUPLANE_DATA=x\0DPUPLANE_HTTP=127.0.0.1:{port}\0")
    assert "process 8: " in fault(8, tmp_path) and "refused" in fault(8, tmp_path)

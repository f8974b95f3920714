"""The wheel: installed outside the tree, it is complete and runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import aiohttp
import pytest

from deploy.kafka.brokers import ports_for
from tests.support.planes import serving
from tests.support.wheelhouse import PACKAGES, ROOT

NOT_SHIPPED = ("deploy/docker/", "deploy/helm/", "deploy/systemd/", "deploy/locks/")
"""Folders that are not shipped in the wheel: they serve builds and installations. Documents are not shipped either."""


@pytest.fixture(scope="module")
def installed(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, installed from the wheel in a new virtual environment."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheelhouse)
    subprocess.run([*pip, "dpuplane"], check=True)
    return folder / "bin" / "dpuplane"


def test_every_file_of_the_packages_is_in_the_wheel(wheelhouse: Path) -> None:
    (wheel,) = wheelhouse.glob("dpuplane-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    ran = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, check=True, text=True)
    files = {name for name in ran.stdout.splitlines() if not name.endswith(".md")}
    wanted = {name for name in files if not name.startswith(NOT_SHIPPED)}
    assert wanted - shipped == set()
    assert not [name for name in shipped if name.startswith("tests/")]


def test_the_demo_runs_from_the_wheel_in_another_folder(installed: Path, tmp_path: Path) -> None:
    sizes = ("--nodes", "50", "--zones", "2", "--dpus-per-zone", "3", "--provision", "1")
    ran = subprocess.run(
        [installed, "demo", *sizes, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["nodes"] == 50


async def test_the_page_the_schemas_and_the_probe_come_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    program, (port,) = (str(installed),), ports_for(1, None)
    async with (
        serving("--data", str(tmp_path / "plane"), "--http", f"127.0.0.1:{port}", program=program) as plane,
        aiohttp.ClientSession(f"http://{plane.address('http')}") as session,
    ):
        for path in ("/", "/page/js/main.js", "/subjects"):
            async with session.get(path) as answer:
                assert answer.status == 200, path
        check = (installed.with_name("python"), "-m", "deploy.cli.processes.healthcheck", str(plane.child.pid))
        probed = await asyncio.create_subprocess_exec(*check, cwd=tmp_path)
        assert await probed.wait() == 0
        assert await plane.stop() == 0
        probed = await asyncio.create_subprocess_exec(*check, cwd=tmp_path)
        assert await probed.wait() == 1

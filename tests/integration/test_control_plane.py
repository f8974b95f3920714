"""The control plane that the tests start."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.eventually import until
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.build import ASSETS, BuildFailed, program

STARTED = """
import pathlib, sys, time
from tests.support.kubernetes.cluster import ControlPlane
plane = ControlPlane(pathlib.Path(sys.argv[1]))
plane.start_etcd()
print(*plane.pids, flush=True)
time.sleep(600)
"""


async def test_its_programs_end_with_a_test_run_that_is_killed(kubernetes_programs: None, tmp_path: Path) -> None:
    command = (sys.executable, "-c", STARTED, str(tmp_path))
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    pids = [int(word) for word in (await child.stdout.readline()).split()]
    assert pids and all(map(_is_running, pids))
    child.kill()
    await child.wait()
    await until(lambda: not any(map(_is_running, pids)))


async def test_kubectl_speaks_to_it(control_plane: ApiServer) -> None:
    assert await control_plane.kubectl("auth", "can-i", "create", "nodes") == "yes\n"


def test_a_folder_of_programs_may_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSETS, str(tmp_path))
    with pytest.raises(BuildFailed, match="has no etcd"):
        program("etcd")
    (tmp_path / "etcd").touch()
    assert program("etcd") == tmp_path / "etcd"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

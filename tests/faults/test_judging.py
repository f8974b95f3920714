"""A crash of a role is detected even without a log line, although the supervisor restarts the role. A plane that does
not respond and a log that cannot be read are problems, not exceptions.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import grpc
import pytest

from deploy.host.storage import LogSource
from schemas.api.stubs import QueriesStub
from tests.faults.checking import Case, check
from tests.faults.judging import bugs_of, faults_of
from tests.faults.network_lab import LabHost, NetworkLab
from tests.faults.roles import Role, state_of
from tests.faults.world import World
from tests.simulation.history import History
from tests.support.certs import CertFiles
from tests.support.eventually import until


class LocalHost(LabHost):
    """A host with the network of the tests."""

    def enter(self, *command: str) -> list[str]:
        return [*command]


def role(folder: Path) -> Role:
    return Role(LocalHost("relay-1", "127.0.0.1", "lo", os.getpid()), (), folder, CertFiles(folder, folder, folder))


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("kill -SEGV $$", ["relay-1 was killed by SIGSEGV, which no fault sent"]),
        ("kill -ABRT $$", ["relay-1 was killed by SIGABRT, which no fault sent"]),
        ("exit 1", ["relay-1 exited with status 1"]),
        ("exit 3", []),
    ],
)
async def test_an_exit_that_no_fault_caused_is_reported_once(tmp_path: Path, ending: str, expected: list[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    restarted = role(tmp_path)
    program = f"if test -e {first}; then touch {second}; echo ready; exec sleep 60; fi; touch {first}; {ending}"
    restarted.start(program=("sh", "-c", program))
    await until(second.exists)
    await restarted.stop()
    assert restarted.ends == 1
    assert list(bugs_of(restarted)) == expected
    assert list(bugs_of(restarted)) == []


async def test_a_kill_by_a_fault_is_not_reported(tmp_path: Path) -> None:
    victim = role(tmp_path)
    victim.start(program=("sh", "-c", "echo ready; exec sleep 60"))
    await victim.ready()
    await victim.kill()
    assert victim.ends == 0
    assert list(bugs_of(victim)) == []


async def test_a_plane_that_does_not_respond_is_a_problem(tmp_path: Path) -> None:
    world = World("embedded", NetworkLab(), tmp_path / "world", random.Random(1))
    async with grpc.aio.insecure_channel("127.0.0.1:9") as channel:
        world.queries = QueriesStub(channel)
        found, others = await faults_of(world)
    assert not found
    assert len(others) == 1
    assert others[0].startswith("the plane does not report its state: UNAVAILABLE")


def test_a_log_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    found, others = check(Case(History(), LogSource(tmp_path), {}))
    assert not found
    assert len(others) == 1
    assert others[0].startswith("the log cannot be read: ")


def test_a_process_that_does_not_exist_is_dead() -> None:
    assert state_of(os.getpid()) == "R"
    assert state_of(2**22 + 1) == "X"

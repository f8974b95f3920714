"""A crash of a role is detected even without a log line: a supervisor's restart would hide it. A plane that does not
answer and a log that cannot be read are faults; the run retries them and goes on.
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


class Here(LabHost):
    """A host with the network of the tests."""

    def enter(self, *command: str) -> list[str]:
        return [*command]


def role(folder: Path) -> Role:
    return Role(Here("relay-1", "127.0.0.1", "lo", os.getpid()), (), folder, CertFiles(folder, folder, folder))


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("kill -SEGV $$", ["relay-1 died of SIGSEGV, which nobody sent"]),
        ("kill -ABRT $$", ["relay-1 died of SIGABRT, which nobody sent"]),
        ("exit 1", ["relay-1 ended by itself with status 1"]),
        ("exit 3", []),
    ],
)
async def test_a_death_that_nobody_brought_about_is_told_once(tmp_path: Path, ending: str, said: list[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    mortal = role(tmp_path)
    program = f"if test -e {first}; then touch {second}; echo ready; exec sleep 60; fi; touch {first}; {ending}"
    mortal.start(program=("sh", "-c", program))
    await until(second.exists)
    await mortal.stop()
    assert mortal.ends == 1
    assert list(bugs_of(mortal)) == said
    assert list(bugs_of(mortal)) == []


async def test_a_death_that_we_brought_about_is_none(tmp_path: Path) -> None:
    victim = role(tmp_path)
    victim.start(program=("sh", "-c", "echo ready; exec sleep 60"))
    await victim.ready()
    await victim.kill()
    assert victim.ends == 0
    assert list(bugs_of(victim)) == []


async def test_a_plane_that_does_not_answer_is_wrong(tmp_path: Path) -> None:
    world = World("embedded", NetworkLab(), tmp_path / "world", random.Random(1))
    async with grpc.aio.insecure_channel("127.0.0.1:9") as channel:
        world.queries = QueriesStub(channel)
        found, others = await faults_of(world)
    assert not found
    assert len(others) == 1
    assert others[0].startswith("the plane does not say how it stands: UNAVAILABLE")


def test_a_log_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    found, others = check(Case(History(), LogSource(tmp_path), {}))
    assert not found
    assert len(others) == 1
    assert others[0].startswith("the log cannot be read: ")


def test_a_process_that_is_gone_is_dead() -> None:
    assert state_of(os.getpid()) == "R"
    assert state_of(2**22 + 1) == "X"

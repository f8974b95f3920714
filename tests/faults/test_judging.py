"""A role that dies is found out, also when its log says nothing: a supervisor would hide it by starting it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.arena import Party
from tests.faults.judging import bugs_of
from tests.faults.roles import Role
from tests.support.certs import Papers
from tests.support.eventually import until


class Here(Party):
    """A party with the network of the tests."""

    def enter(self, *command: str) -> list[str]:
        return [*command]


def role(folder: Path) -> Role:
    return Role(Here("relay-1", "127.0.0.1", "lo", os.getpid()), (), folder, Papers(folder, folder, folder))


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
    assert list(bugs_of(mortal)) == said
    assert list(bugs_of(mortal)) == []


async def test_a_death_that_we_brought_about_is_none(tmp_path: Path) -> None:
    victim = role(tmp_path)
    victim.start(program=("sh", "-c", "echo ready; exec sleep 60"))
    await victim.ready()
    await victim.kill()
    assert list(bugs_of(victim)) == []

"""What commands print for people, and the exit statuses that scripts go by, where either was once misleading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deploy.cli import cli
from schemas.api import dpuplane_pb2 as pb
from tests.support.served import Served, served
from tests.support.stated_log import stated


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


async def run(plane: Served, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--server", plane.address])


async def test_one_rule_is_counted_as_one(plane: Served) -> None:
    await plane.join("z1", pb.NodeSpec(name="n1", addresses=["10.0.0.1"]))
    assert (await run(plane, "rules", "show", "z1")).stdout.splitlines()[0].endswith(", 1 rule")
    await plane.join("z1", pb.NodeSpec(name="n2", addresses=["10.0.0.9"]))
    assert (await run(plane, "rules", "show", "z1")).stdout.splitlines()[0].endswith(", 2 rules")


@pytest.mark.parametrize(
    ("at", "said"), [("1", "is before this log begins, at "), ("9999999999999", "is in the future; here it is ")]
)
async def test_a_replay_to_a_moment_that_the_log_has_not_is_refused_as_a_query_is(
    at: str, said: str, tmp_path: Path
) -> None:
    await stated(tmp_path, records=4)
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["replay", "--data", str(tmp_path), "--at", at])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert said in ran.stderr

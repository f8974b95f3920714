"""Two versions of the plane with different rules on one log: when a raise is permitted, and its effect."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from schemas.api import dpuplane_pb2 as pb
from tests.support.planes import DPUPLANE, Process, Ran, run, serving
from tests.support.served import served

NEXT = (sys.executable, "-m", "tests.support.next_build")
NOW = (DPUPLANE,)

_prefixes = itertools.count()


class TwoBuilds:
    """Processes of two program versions over one log on Kafka, each with a state folder that survives the process."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.on = ("--kafka", bootstrap, "--topic-prefix", f"upgrade-{next(_prefixes)}")
        self._folder = folder

    @asynccontextmanager
    async def process(self, name: str, program: Sequence[str]) -> AsyncIterator[Process]:
        state = ("--state", str(self._folder / name), "--name", name, "--partitions", "2", "--as-of-servers", "0")
        opening = serving(*self.on, *state, "--role", "api", stderr=self._folder / f"{name}.log", program=program)
        async with opening as process:
            yield process
            if process.child.returncode is None:
                assert await process.stop() == 0


async def join(server: str, node: str) -> Ran:
    return await run("nodes", "join", node, "--zone", "rack-1", "--output", "json", server=server)


async def versions(server: str) -> dict[str, set[int]]:
    """The fold versions of the zones partitions, by replica."""
    ran = await run("status", "--output", "json", server=server)
    assert ran.status == 0, ran
    status = ran.json()
    return {
        replica["name"]: {
            part["fold_version"] for part in replica["partitions"] if part["partition"].startswith("zones")
        }
        for replica in status["replicas"]
    }


async def until_alive(server: str, *names: str) -> None:
    """Wait until a server reports exactly these replicas as live."""
    async with asyncio.timeout(60):
        while {name for name, found in (await versions(server)).items() if found} != {*names}:
            await asyncio.sleep(0.2)
    await asyncio.sleep(2.5)


async def verified(plane: TwoBuilds, server: str) -> dict[str, Any]:
    ran = await run("verify", *plane.on, "--output", "json", server=server, program=NEXT)
    assert ran.status == 0, ran
    return dict(ran.json())


@pytest.mark.kafka
@pytest.mark.timeout(240)
async def test_a_raise_is_refused_while_a_live_replica_lacks_the_rules(kafka_cluster: str, tmp_path: Path) -> None:
    plane = TwoBuilds(kafka_cluster, tmp_path)
    async with plane.process("new", NEXT) as new:
        server = new.address("api")
        async with plane.process("old", NOW) as old:
            await run("zones", "limit", "rack-1", "--parallel-installs", "3", server=server)
            for node in ("n1", "x1"):
                assert (await join(old.address("api"), node)).status == 0
            await until_alive(server, "new", "old")
            dry = await run("upgrade", "--dry-run", *plane.on, "--output", "json", server=server, program=NEXT)
            assert (dry.status, dry.json()["ready"]) == (1, False)
            (unready,) = dry.json()["unready"]
            assert unready.startswith("old ")
            assert "does not support fold version 3 of zones" in unready
            changed = {rows["table"]: rows["keys"] for each in dry.json()["raises"] for rows in each["rows"]}
            assert changed == {"zones": ["rack-1"], "places": ["rack-1"]}

            refused = await run("upgrade", server=server, program=NEXT)
            assert refused.status == 1
            assert "replica: old does not support fold version 3 of zones; upgrade it first" in refused.stderr
            assert await versions(server) == {"new": {1}, "old": {1}}
        async with plane.process(
            "old", NEXT
        ) as upgraded:  # the process continues from state saved by the earlier version
            await until_alive(server, "new", "old")
            assert (await verified(plane, server))["states_compared"] > 0
            raised = await run("upgrade", "--output", "json", server=server, program=NEXT)
            assert (raised.status, raised.json()["outcome"]) == (0, "done"), raised
            again = await run("upgrade", "--output", "json", server=server, program=NEXT)
            assert (again.status, again.json()["outcome"], again.stderr) == (0, "unchanged", "")
            assert "nothing to upgrade" in again.json()["reason"]

            taken = await join(upgraded.address("api"), "x2")
            assert (taken.status, "must not begin with x" in taken.stderr) == (1, True)
            assert (await join(server, "n2")).status == 0
            await until_alive(server, "new", "old")
            assert await versions(server) == {"new": {3}, "old": {3}}
            assert (await verified(plane, server))["states_compared"] > 0
    await _check_restarts(plane)


async def _check_restarts(plane: TwoBuilds) -> None:
    """Check that state from before and after the raise and no state give one result, and that an old process halts."""
    async with plane.process("new", NEXT) as new, plane.process("fresh", NEXT):
        server = new.address("api")
        async with plane.process("late", NOW):
            await until_alive(server, "new", "fresh", "late")
            status = (await run("status", "--output", "json", server=server)).json()
            assert {(found["replica"], "supports [1, 2]" in found["reason"]) for found in status["halted"]} == {
                ("late", True)
            }
        listed = (await run("nodes", "list", "--output", "json", server=server)).json()["nodes"]
        assert [node["name"] for node in listed] == ["n1", "n2", "x1"]
        assert (await verified(plane, server))["states_compared"] > 0


# -- the API


@pytest.mark.parametrize(
    ("living", "says"),
    [
        (
            {"replica-1": {"zones": [1, 2, 3]}, "other": {"zones": [1, 2]}},
            "replica: other does not support fold version 3",
        ),
        ({"replica-1": {"zones": [1, 2]}}, "replica: replica-1 does not support fold version 3 of zones"),
        (None, "receives too few beacons"),
    ],
)
async def test_a_raise_that_is_not_possible_yet_is_an_error_and_appends_nothing(
    tmp_path: Path, living: Mapping[str, Mapping[str, Sequence[int]]] | None, says: str
) -> None:
    async with served(tmp_path, supports=lambda: living) as plane:
        before = await plane.stated()
        with pytest.raises(grpc.aio.AioRpcError, match=says) as caught:
            await plane.calls.UpgradeFoldVersion(pb.UpgradeFoldVersionRequest(topic="zones", version=3))
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert await plane.stated() == before


async def test_a_replica_that_does_not_fold_the_topic_needs_no_rules_for_it(tmp_path: Path) -> None:
    living = {"replica-1": {"zones": [1, 2, 3]}, "relay": {"fleet": [1]}}
    async with served(tmp_path, supports=lambda: living) as plane:
        request = pb.UpgradeFoldVersionRequest(topic="zones", version=3)
        answer = await plane.calls.UpgradeFoldVersion(request, timeout=5)
        assert (answer.outcome, plane.replica.folded(plane.replica.partitions("zones")[0]).halted != "") == (
            pb.OUTCOME_UNKNOWN,
            True,
        )


async def test_a_raise_to_the_present_version_is_unchanged_in_each_partition(tmp_path: Path) -> None:
    async with served(tmp_path) as plane:
        one = await plane.calls.UpgradeFoldVersion(pb.UpgradeFoldVersionRequest(topic="fleet", version=1))
        assert (one.outcome, one.reason) == (pb.OUTCOME_UNCHANGED, "version: fleet/0 already has fold version 1")
        all_of = await plane.calls.UpgradeFoldVersion(pb.UpgradeFoldVersionRequest(topic="zones", version=1))
        assert all_of.outcome == pb.OUTCOME_UNCHANGED
        assert [part.outcome for part in all_of.partitions] == [pb.OUTCOME_UNCHANGED] * 3
        shown = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=all_of.command_id))
        assert shown == all_of


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (pb.UpgradeFoldVersionRequest(topic="zone", version=3), "topic: 'zone' must be one of"),
        (pb.UpgradeFoldVersionRequest(topic="zones"), "version: 0 must be at least 1"),
    ],
)
async def test_an_invalid_upgrade_request_is_refused_with_its_field(
    tmp_path: Path, request_: pb.UpgradeFoldVersionRequest, says: str
) -> None:
    async with served(tmp_path) as plane:
        with pytest.raises(grpc.aio.AioRpcError, match=says):
            await plane.calls.UpgradeFoldVersion(request_)

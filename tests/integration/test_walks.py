"""The walks in the READMEs name the files that an event passes, in the order in which the event reaches them.

Each walk is run in a plane in this process, with a profiler that records the running files. Files outside of the walk
may run in between: background tasks, and helpers of files in the walk (codec, checks of fields, indexes).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import dropwhile
from pathlib import Path
from types import FrameType
from typing import Any

from commands.client.client import PlaneClient
from deploy.clock import now_ms
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import SimulatedDevice
from drivers.wire.websocket import Dialer
from projections.resources.kinds import DPU
from schemas.api import dpuplane_pb2 as pb
from schemas.resources.dpf.names import SERVICES
from tests.integration.test_cli_provisioning import HOSTS, fleet, images, manifest
from tests.support.eventually import until

ROOT = Path(__file__).parent.parent.parent
FILES_MAX = 25
WITHIN_S = 60.0
READY_S = 150.0
"""Longest wait for two DPUs from their objects to Ready: ten seconds on a free core."""


READMES = {
    "A join": "projections",
    "A claim": "commands",
    "A step": "drivers",
    "A wanted DPU": "drivers",
    "A network document": "drivers",
}
_PORT = {"interfaceType": "physical", "physical": {"interfaceName": "p0"}}
INTERFACE = manifest("DPUServiceInterface", "p0", {"template": {"spec": {"template": {"spec": _PORT}}}}, group=SERVICES)


def walk(title: str) -> list[str]:
    """The files of a walk, from the README of its folder."""
    text = (ROOT / READMES[title] / "README.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([^`]+)`", text, re.M)


@contextmanager
def noted_files() -> Iterator[list[str]]:
    """Records the files of this tree that run in this thread during the context, in order."""
    files: list[str] = []
    prefix = f"{ROOT}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(prefix):
            files.append(name.removeprefix(prefix))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


@asynccontextmanager
async def plane_and_client(data: Path, simulate: int, **given: str) -> AsyncIterator[tuple[Plane, PlaneClient]]:
    listeners = dict.fromkeys(("listen", "http", "agents", "images"), "127.0.0.1:0")
    settings = load_settings({"data": data, **listeners, "simulate": simulate, **given}, None, {})
    rng = random.Random(1)
    async with (
        Plane.start(settings, now_ms=now_ms, rng=rng, expected_zones=("z",)) as plane,
        PlaneClient([plane.addresses["api"]], timeout_s=WITHIN_S, now_ms=now_ms, rng=rng) as client,
    ):
        yield plane, client


def joined(number: int) -> pb.JoinNodesRequest:
    node = pb.NodeSpec(name=f"node-{number}", addresses=[f"10.0.0.{number}"])
    return pb.JoinNodesRequest(zone="z", nodes=[node])


async def assert_walked(title: str, command: Awaitable[pb.CommandResult]) -> None:
    """Check that a command and its consequences pass the files of a walk in order."""
    expected = walk(title)
    assert 0 < len(expected) <= FILES_MAX
    assert len(set(expected)) == len(expected), "a file occurs twice in the walk"
    with noted_files() as called:
        assert (await command).outcome == pb.OUTCOME_DONE
        with suppress(TimeoutError):
            await until(lambda: not missing(expected, called))
    assert not missing(expected, called)


def missing(expected: list[str], called: list[str]) -> list[str]:
    """The rest of a walk from the first file that does not run after its predecessor."""
    rest = iter(called)
    return list(dropwhile(lambda file: file in rest, expected))


async def test_the_walk_of_a_join_is_correct(tmp_path: Path) -> None:
    async with plane_and_client(tmp_path / "plane", simulate=0) as (plane, client), Dialer() as dialer:
        await client.command("RegisterDpu", pb.RegisterDpuRequest(zone="z", dpu="dpu-1", node="node-1", serial="1"))
        await client.command("JoinNodes", joined(1))
        rng = random.Random(2)
        identity, relays = AgentIdentity("z", "dpu-1", boot_id="1"), [plane.addresses["agents"]]
        agent = Agent(
            identity, relays, dial=dialer.dial, device=SimulatedDevice(rng=rng), store=MemoryTableStore(), rng=rng
        )
        serving = asyncio.create_task(agent.run())
        await until(lambda: bool(plane.states.installs("z").versions.rows))
        await assert_walked("A join", client.command("JoinNodes", joined(2)))
        serving.cancel()


async def test_the_walk_of_a_claim_is_correct(tmp_path: Path) -> None:
    async with plane_and_client(tmp_path / "plane", simulate=0) as (_, client):
        claims = [pb.ClaimSpec(node=f"node-{number}", address=f"10.0.0.{number}") for number in (1, 2)]
        request = pb.ClaimIndicesRequest(domain="training-7", clique="z", claims=claims)
        await assert_walked("A claim", client.command("ClaimIndices", request))


async def test_the_walk_of_a_step_is_correct(tmp_path: Path) -> None:
    async with plane_and_client(tmp_path / "plane", simulate=1) as (plane, client):
        await client.command("JoinNodes", joined(1))
        await until(lambda: bool(plane.states.zone("z").dpus.rows))
        request = pb.RequestLifecycleRequest(zone="z", dpu="z-dpu-0000", image="image-1")
        request.verb = pb.RequestLifecycleRequest.VERB_PROVISION
        await assert_walked("A step", client.command("RequestLifecycle", request))


async def test_the_walks_of_a_wanted_dpu_and_of_its_network_document_are_correct(tmp_path: Path) -> None:
    async with (
        images("v1") as server,
        plane_and_client(tmp_path / "plane", 1, image_hosts="127.0.0.1", simulate_pace="0.1") as (_, client),
    ):
        request = pb.ApplyResourcesRequest(resources=[resource(each) for each in fleet(server)])
        await assert_walked("A wanted DPU", applied_and_ready(client, request))
        request = pb.ApplyResourcesRequest(resources=[resource(INTERFACE)])
        await assert_walked("A network document", applied_and_observed(client, request))


def resource(manifest: dict[str, Any]) -> pb.ResourceSpec:
    """A manifest as an object of a request."""
    group, _, version = manifest["apiVersion"].partition("/")
    return pb.ResourceSpec(
        kind=f"{manifest['kind']}.{group}",
        api_version=f"{group}/{version}",
        spec=json.dumps(manifest["spec"]),
        **manifest["metadata"],
    )


async def applied_and_ready(client: PlaneClient, request: pb.ApplyResourcesRequest) -> pb.CommandResult:
    """Apply objects, and wait until their DPUs are ready."""
    result = await client.command("ApplyResources", request)
    listed, ready = pb.ListResourcesRequest(kind=DPU), ["Ready"] * len(HOSTS)
    async with asyncio.timeout(READY_S):
        while [each.phase for each in (await client.query("ListResources", listed)).resources] != ready:
            await asyncio.sleep(0.2)
    return result


async def applied_and_observed(client: PlaneClient, request: pb.ApplyResourcesRequest) -> pb.CommandResult:
    """Apply an interface, and wait until it is observed as ready on its DPUs."""
    result = await client.command("ApplyResources", request)
    (given,) = request.resources
    named = pb.GetResourceRequest(kind=given.kind, namespace=given.namespace, name=given.name)
    async with asyncio.timeout(WITHIN_S):
        while not (found := await client.query("GetResource", named)).HasField("observation") or not is_ready(found):
            await asyncio.sleep(0.1)
    return result


def is_ready(found: pb.Resource) -> bool:
    """Whether an object is observed as ready."""
    return bool(json.loads(found.observation.fields)["ready"])

"""The plane on three real brokers: processes of every role side by side, killed in turn while commands flow."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.integration.test_cli_host_steps import manifest
from tests.support.image_server import ServedFile, image_server
from tests.support.planes import Process, Ran, run, serving, started
from tests.support.redfish_steps import BFB
from tests.support.struck_brokers import StruckBrokers

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

ZONES = ("a", "b", "c")
_prefixes = itertools.count()


class Roles:
    """Two processes of each role, which a test can kill, and a simulator with the addresses of both relays."""

    def __init__(self, apis: list[Process], relays: list[Process], provisioners: list[Process]) -> None:
        self.apis = apis
        self.relays = relays
        self.provisioners = provisioners

    @property
    def servers(self) -> str:
        return ",".join(api.address("api") for api in self.apis)


@asynccontextmanager
async def plane_of_roles(
    bootstrap: str, logs: Path, dpus_per_zone: int, *, images: tuple[str, ...] = ()
) -> AsyncIterator[Roles]:
    """With `images`, provisioners have these options of an image store, which they share."""
    on = ("--kafka", bootstrap, "--topic-prefix", f"roles-{next(_prefixes)}", "--partitions", "3")
    async with AsyncExitStack() as stack:
        running: dict[str, list[Process]] = {}
        for role in ("api", "relay", "provisioner"):
            for number in (1, 2):
                more = images if role == "provisioner" else ()
                name = ("--role", role, "--name", f"{role}-{number}")
                process = serving(*on, *name, *more, stderr=logs / f"{role}{number}")
                running.setdefault(role, []).append(await stack.enter_async_context(process))
        roles = Roles(running["api"], running["relay"], running["provisioner"])
        relays = ",".join(relay.address("agents") for relay in roles.relays)
        simulate = ["simulator", "--relay", relays, "--dpus-per-zone", str(dpus_per_zone), "--server", roles.servers]
        if images:
            simulate += ["--image-ca", str(logs / "images" / "tls.pem")]
        await stack.enter_async_context(started(*simulate, stderr=logs / "simulator"))
        yield roles


async def join(roles: Roles, number: int) -> Ran:
    """Send a join, and repeat it under its id until its outcome is known."""
    address = f"10.0.{number // 250}.{number % 250 + 1}"
    arguments = ("nodes", "join", f"n{number:04}", "--zone", ZONES[number % 3], "--address", address)
    command: tuple[str, ...] = ()
    for _ in range(20):
        ran = await run(*arguments, *command, "--output", "json", "--timeout", "10", server=roles.servers)
        if ran.status != 3:
            return ran
        if "--command-id " in ran.stderr:
            command = ("--command-id", ran.stderr.split("--command-id ")[1].split()[0])
    raise AssertionError(ran)


async def until_equal(roles: Roles, dpus: int) -> None:
    """Wait until `verify` finds every DPU equal to the log. On a timeout its output is the error."""
    ran = Ran(1, "", "verify did not run")
    for _ in range(30):
        ran = await run("verify", "--output", "json", server=roles.servers)
        if ran.status == 0 and ran.json()["devices_equal"] == dpus:
            return
        await asyncio.sleep(1)
    raise AssertionError(ran)


async def until_saved(api: Process) -> None:
    """Wait until a replica has saved every deciding partition, which takes a second after a change."""
    async with asyncio.timeout(60):
        while True:
            status = (await run("status", "--output", "json", server=api.address("api"))).json()
            (replica,) = (found for found in status["replicas"] if found["name"] == "api-1")
            deciding = [part for part in replica["partitions"] if not part["partition"].startswith("installs")]
            if all(part["digest_position"] for part in deciding):
                return
            await asyncio.sleep(0.2)


async def test_killing_any_process_or_broker_loses_no_command(kafka_brokers: StruckBrokers, tmp_path: Path) -> None:
    async with plane_of_roles(kafka_brokers.bootstrap, tmp_path, dpus_per_zone=3) as roles:
        done: list[int] = []

        async def keep_joining() -> None:
            for number in itertools.count():
                ran = await join(roles, number)
                assert (ran.status, ran.json()["outcome"]) == (0, "done"), ran
                done.append(number)

        async with asyncio.TaskGroup() as tasks:
            flow = tasks.create_task(keep_joining())
            brokers: list[Callable[[], None]] = [partial(kafka_brokers.kill, broker) for broker in kafka_brokers.ids]
            for kill in (roles.apis[0].kill, roles.relays[0].kill, roles.provisioners[0].kill, *brokers):
                before = len(done)
                kill()
                async with asyncio.timeout(60):
                    while len(done) < before + 3:
                        await asyncio.sleep(0.1)
                await kafka_brokers.heal()
            flow.cancel()

        listed = await run("nodes", "list", "--output", "json", server=roles.servers)
        assert {f"n{number:04}" for number in done} <= {node["name"] for node in listed.json()["nodes"]}
        await until_equal(roles, dpus=9)


async def test_a_provisioner_takes_over_from_one_that_was_killed(kafka_brokers: StruckBrokers, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a password of the plane")
    secret = ("--bmc-password-file", str(tmp_path / "password"))
    kept = ("--images-dir", str(tmp_path / "images"), "--image-hosts", "127.0.0.1", "--images", "127.0.0.1:0", *secret)
    async with (
        image_server() as images,
        plane_of_roles(kafka_brokers.bootstrap, tmp_path, dpus_per_zone=2, images=kept) as roles,
    ):
        images.files["a.bfb"] = ServedFile(BFB)
        (tmp_path / "image.yaml").write_text(yaml.safe_dump(manifest("BFB", "image-1", {"url": images.url("a.bfb")})))
        applied = await run("apply", "-f", str(tmp_path / "image.yaml"), server=roles.servers)
        assert applied.status == 0, applied
        kept_image = ("wait", "object", "bfb/image-1", "-n", "dpf", "--timeout", "60")
        assert (await run(*kept_image, server=roles.servers)).status == 0
        await join(roles, 0)
        await until_equal(roles, dpus=2)
        for dpu in ("a-dpu-0000", "a-dpu-0001"):
            asked = await run("dpus", "provision", dpu, "--image", "image-1", server=roles.servers)
            assert asked.status == 0, asked
        roles.provisioners[0].kill()
        async with asyncio.timeout(180):
            phases = set[str]()
            while phases != {"Ready"}:
                listed = await run("dpus", "list", "--output", "json", server=roles.servers)
                phases = {dpu["phase"] for dpu in listed.json()["dpus"]}
                await asyncio.sleep(0.5)


async def test_roles_start_in_any_order(kafka_cluster: str, tmp_path: Path) -> None:
    on = ("--kafka", kafka_cluster, "--topic-prefix", f"order-{next(_prefixes)}", "--partitions", "3")

    async def relay_first() -> str:
        async with serving(*on, "--role", "relay", stderr=tmp_path / "relay") as relay:
            return str(relay.ready)

    waiting = asyncio.create_task(relay_first())
    while not (tmp_path / "relay").exists() or "log not opened, retrying" not in (tmp_path / "relay").read_text():
        await asyncio.sleep(0.1)
    async with serving(*on, "--role", "api"):
        assert "agents=" in await waiting


async def test_a_replica_that_is_killed_often_returns_to_the_same_state(kafka_cluster: str, tmp_path: Path) -> None:
    on = ("--kafka", kafka_cluster, "--topic-prefix", f"state-{next(_prefixes)}", "--partitions", "3")
    number = itertools.count()
    for _ in range(5):
        async with serving(*on, "--role", "api", "--state", str(tmp_path / "state"), "--name", "api-1") as api:
            roles = Roles([api], [], [])
            for _ in range(3):
                assert (await join(roles, next(number))).status == 0
            await until_saved(api)
            assert (await join(roles, next(number))).status == 0
            api.kill()
            await api.ended()
    async with serving(*on, "--role", "api", "--state", str(tmp_path / "state"), "--name", "api-1") as api:
        await until_saved(api)
        verified = await run("verify", "--output", "json", server=api.address("api"))
        assert verified.status == 0, verified
        assert verified.json()["states_compared"] >= 7
        listed = await run("nodes", "list", "--output", "json", server=api.address("api"))
        assert len(listed.json()["nodes"]) == 20

"""The brokers that the plane itself runs: their stored data, their errors, and their clean shutdown."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import socket
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from deploy.kafka.jars import NoKafka, cache_folder, kafka_jars
from eventstore.kafka.log import KafkaLog
from eventstore.kafka.topics import count_brokers
from eventstore.log import FLEET_0
from tests.contract.engine import KEY, put, read_all
from tests.support.struck_brokers import StruckBrokers

pytestmark = pytest.mark.kafka

PATIENCE_S = 120


def brokers_in(data: Path, *, count: int = 1, controllers: int = 0, base_port: int | None = None) -> StruckBrokers:
    return StruckBrokers(data, cache_folder(os.environ), count=count, controllers=controllers, base_port=base_port)


def log_in(brokers: StruckBrokers, prefix: str, *, create: bool) -> AbstractAsyncContextManager[KafkaLog]:
    return KafkaLog.open(
        TOPICS, brokers.bootstrap, rng=random.Random(1), topic_prefix=prefix, partition_count=1, create=create
    )


async def test_a_restart_continues_with_the_stored_data(tmp_path: Path) -> None:
    async with brokers_in(tmp_path) as brokers:
        bootstrap = brokers.bootstrap
        async with KafkaLog.open(TOPICS, bootstrap, rng=random.Random(1)) as log:
            await put(log, FLEET_0, b"kept")
    async with brokers_in(tmp_path) as brokers:
        assert brokers.bootstrap == bootstrap
        async with KafkaLog.open(TOPICS, bootstrap, rng=random.Random(1), create=False) as log:
            assert [record.value for record in await read_all(log, FLEET_0)] == [b"kept"]
            await log.append(FLEET_0, KEY, b"more")
        with pytest.raises(NoKafka, match=f"{tmp_path} is in use by other brokers"):
            await brokers_in(tmp_path).start()
    with pytest.raises(NoKafka, match="holds a cluster of 1, not of 3"):
        await brokers_in(tmp_path, count=3).start()
    with pytest.raises(NoKafka, match=r"port: the cluster in .* begins at \d+, not at 9092"):
        await brokers_in(tmp_path, base_port=9092).start()


async def test_any_of_three_separate_controllers_may_be_down(tmp_path: Path) -> None:
    async with brokers_in(tmp_path, controllers=3) as brokers, asyncio.timeout(PATIENCE_S):
        assert (brokers.ids, brokers.controller_ids) == ((1,), (2, 3, 4))
        for controller in brokers.controller_ids:  # the active one is among them, and only such a one makes topics
            brokers.kill(controller)
            async with log_in(brokers, f"without-{controller}", create=True) as log:
                await put(log, FLEET_0, b"made")
            with pytest.raises(NoKafka, match=f"controller {controller} ended with status -9"):
                await brokers.ready()
            await brokers.heal()
    async with brokers_in(tmp_path, controllers=3) as brokers:
        for controller in brokers.controller_ids:
            async with log_in(brokers, f"without-{controller}", create=False) as log:
                assert [record.value for record in await read_all(log, FLEET_0)] == [b"made"]
    with pytest.raises(NoKafka, match=r"controllers: .* holds a cluster with 3, not 0"):
        await brokers_in(tmp_path).start()


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NoKafka, match=f"127.0.0.1:{port} cannot be used"):
            await brokers_in(tmp_path, base_port=port).start()


async def test_invalid_ports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NoKafka, match="port 65534: 6 ports"):
        await brokers_in(tmp_path, count=3, base_port=65_534).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_the_command_stops_its_brokers_at_its_end(tmp_path: Path, number: signal.Signals) -> None:
    program = "import sys; from deploy.cli.processes.kafka import kafka; kafka(sys.argv[1:])"
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "--brokers", "1", "--data", str(tmp_path / "data")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert command.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        ready = (await command.stdout.readline()).decode().split()
        assert ready[0] == "ready"
        assert await count_brokers(ready[1], random.Random(1)) == 1
        command.send_signal(number)
        assert await command.wait() == (-number if number is signal.SIGKILL else 0)
        assert await command.stdout.read() == b""
        while await _answers(ready[1]):
            await asyncio.sleep(0.05)


async def test_a_killed_broker_is_restarted_unless_it_cannot_start(tmp_path: Path) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    async with brokers_in(tmp_path) as brokers, asyncio.timeout(PATIENCE_S):
        keeping = asyncio.ensure_future(brokers.keep(said.put_nowait))
        brokers.kill(1)
        assert re.match(r"broker 1 ended with status -9, see .*output\.txt; restarting it", await said.get())
        await brokers.ready()
        brokers.kill(1)
        with pytest.raises(NoKafka, match="broker 1 ended with status -9"):
            await keeping


async def test_a_failed_download_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(NoKafka, match=r"downloading kafka-.* from Maven Central"):
        await asyncio.to_thread(kafka_jars, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["kafka-4.3.1.lock"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"DPUPLANE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/dpuplane")),
        ({}, Path.home() / ".cache" / "dpuplane"),
    ],
)
def test_downloads_go_to_a_folder_outside_the_tree(environment: dict[str, str], folder: Path) -> None:
    assert cache_folder(environment) == folder


async def _answers(address: str) -> bool:
    host, port = address.split(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True

"""`dpuplane clique-agent` beside a real plane: index, files, signals, readiness, sessions, and the end of each."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

from projections.cliques.files import FREE_SLOT_ADDRESS, dns_name
from schemas.api import dpuplane_pb2 as pb
from tests.support.clique_agents import CLIQUE, DAEMON, DOMAIN, agent, files_of
from tests.support.planes import DPUPLANE, started
from tests.support.served import Served, served

PATIENCE_S = 90.0


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def clique(plane: Served) -> dict[str, pb.CliqueMember]:
    found = await plane.queries.GetClique(pb.GetCliqueRequest(domain=DOMAIN, clique=CLIQUE))
    return {member.node: member for member in found.members}


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = holds()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.05)


async def test_an_agent_claims_writes_the_files_starts_the_daemon_and_reports_it_ready(tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane, agent(tmp_path / "a", plane.address, 1) as found:

        async def is_ready() -> bool:
            return (await clique(plane))["n1"].ready

        await until(found.daemon)
        await until(is_ready)
        member = (await clique(plane))["n1"]
        assert (member.index, member.address, member.session_alive) == (0, "10.0.0.1", True)
        assert found.peers.read_text().splitlines() == [dns_name(DOMAIN, index) for index in range(18)]
        lines = found.hosts.read_text().splitlines()
        assert lines[0] == "127.0.0.1 localhost"
        assert lines[2:] == [
            f"{'10.0.0.1' if index == 0 else FREE_SLOT_ADDRESS}\t{dns_name(DOMAIN, index)}" for index in range(18)
        ]


async def test_a_peer_is_in_the_hosts_file_of_all_and_signalled_once(tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane, agent(tmp_path / "a", plane.address, 1) as first:
        await until(first.daemon)
        async with agent(tmp_path / "a", plane.address, 2) as second, agent(tmp_path / "a", plane.address, 3) as third:
            await until(second.daemon)
            await until(third.daemon)
            for each in (first, second, third):
                await until(lambda each=each: "10.0.0.3" in each.hosts.read_text())  # type: ignore[misc]
            await until(lambda: first.daemon()["signals"] >= 1)
            assert sorted(member.index for member in (await clique(plane)).values()) == [0, 1, 2]

        async def have_left() -> bool:
            return set(await clique(plane)) == {"n1"}

        await until(have_left)
        await until(lambda: "10.0.0.2" not in first.hosts.read_text())
        assert 1 <= first.daemon()["signals"] <= 2, "peers that left need no signal"


async def test_a_daemon_that_ends_is_started_again_and_one_that_does_not_answer_is_not_ready(tmp_path: Path) -> None:
    flag = tmp_path / "answers"
    flag.touch()
    check = f"import os; print('READY' if os.path.exists({str(flag)!r}) else 'NOT')"
    async with served(tmp_path / "plane") as plane, agent(tmp_path / "a", plane.address, 1, check) as found:
        await until(found.daemon)
        before = found.daemon()["pid"]
        os.kill(before, 9)
        await until(lambda: found.daemon()["pid"] != before)

        async def is_ready() -> bool:
            return (await clique(plane))["n1"].ready

        await until(is_ready)
        assert (await clique(plane))["n1"].index == 0


async def test_an_agent_that_stops_releases_its_index_and_ends_its_daemon(tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane:
        async with agent(tmp_path / "a", plane.address, 1) as found:
            await until(found.daemon)
            pid = found.daemon()["pid"]
        assert not is_running(pid)
        assert await clique(plane) == {}


async def test_a_restarted_pod_keeps_the_index_and_the_hosts_file_does_not_grow(tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane:
        async with agent(tmp_path / "a", plane.address, 1) as found:
            await until(found.daemon)
            before = found.hosts.read_text()
            found.agent._releases = False
        async with agent(tmp_path / "a", plane.address, 1, uid="pod-1b") as again:
            await until(lambda: again.agent.index is not None)
            assert again.agent.index == 0
            assert again.hosts.read_text() == before


async def test_the_command_runs_the_daemon_and_ends_with_one_sentence_where_it_cannot(tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane:
        peers, hosts, notes = files_of(tmp_path / "a", 1)
        files = ("--peers-file", str(peers), "--hosts-file", str(hosts))
        member = ("--node", "n1", "--address", "10.0.0.1", "--uid", "pod-1")
        agent_of = ("clique-agent", "--server", plane.address, *member, *files, "--clique", CLIQUE)
        daemon = ("--", sys.executable, "-c", DAEMON, str(notes))
        async with started(*agent_of, "--domain", DOMAIN, *daemon) as process:
            await until(notes.exists)
            assert (await clique(plane))["n1"].index == 0
            assert await process.stop() == 0
        assert await clique(plane) == {}
        for more, sentence in (
            (("--domain", "!!"), "domain: '!!' must be 1 to 128 letters"),
            (("--domain", DOMAIN, "--created", "2099-01-01T00:00:00Z"), "created_ms[0]: "),
        ):
            command = [DPUPLANE, *agent_of, *more, *daemon]
            child = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
            _, errors = await child.communicate()
            assert child.returncode and sentence in errors.decode() and "Traceback" not in errors.decode(), errors

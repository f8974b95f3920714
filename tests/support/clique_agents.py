"""Clique agents in this process, each with its files and a daemon that notes its starts and signals."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from commands.client.client import PlaneClient
from deploy.clique_agent.agent import CliqueAgent, MemberIdentity
from deploy.clique_agent.daemon_process import DaemonProcess
from deploy.clique_agent.files import DaemonFiles
from tests.support.served import now_ms

DOMAIN, CLIQUE = "domain-1", "rack.1"

DAEMON = """
import json, os, signal, sys
notes = sys.argv[1]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
signals = 0
while True:
    with open(notes + ".new", "w") as out:
        json.dump({"pid": os.getpid(), "signals": signals}, out)
    os.replace(notes + ".new", notes)  # a reader finds a whole file
    signal.sigwait({signal.SIGUSR1})
    signals += 1
"""


class Running(NamedTuple):
    """An agent with its task, its files, and the notes of its daemon."""

    agent: CliqueAgent
    task: asyncio.Task[None]
    peers: Path
    hosts: Path
    notes: Path

    def daemon(self) -> dict[str, int]:
        """The pid of the daemon, and the signals it has got; empty before it runs."""
        try:
            found: dict[str, int] = json.loads(self.notes.read_text())
        except FileNotFoundError:
            return {}
        return found

    @property
    def signals_sent(self) -> int:
        """The signals that the agent has sent to daemons. A busy machine delivers them later, or several as one."""
        return self.agent._daemon.signals


@asynccontextmanager
async def agent(
    folder: Path, server: str, number: int, check: str = "", *, uid: str = "", member: MemberIdentity | None = None
) -> AsyncIterator[Running]:
    """An agent of a node, or of another member, stopped at the end as SIGTERM stops it."""
    peers, hosts, notes = files_of(folder, number)
    if member is None:
        member = MemberIdentity(DOMAIN, CLIQUE, f"n{number}", f"10.0.0.{number}", uid or f"pod-{number}", now_ms())
    rng = random.Random(number)
    client = PlaneClient([server], timeout_s=5.0, now_ms=now_ms, rng=rng, principal="agent")
    async with client:
        daemon = DaemonProcess([sys.executable, "-c", DAEMON, str(notes)], rng)
        found = CliqueAgent(
            client,
            member,
            DaemonFiles(peers, hosts),
            daemon,
            check=[sys.executable, "-c", check] if check else [],
            releases=True,
            now_ms=now_ms,
            rng=rng,
        )
        task = asyncio.create_task(found.run())
        try:
            yield Running(found, task, peers, hosts, notes)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def files_of(folder: Path, number: int) -> tuple[Path, Path, Path]:
    """The peers file, the hosts file and the notes of the daemon; the hosts file has a line of somebody else."""
    folder.mkdir(exist_ok=True)
    peers, hosts, notes = (folder / f"{name}-{number}" for name in ("nodes.cfg", "hosts", "notes"))
    if not hosts.exists():
        hosts.write_text("127.0.0.1 localhost\n")
    return peers, hosts, notes

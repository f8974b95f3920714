"""Processes of the plane that are killed, frozen, starved of files, or come back without what they had saved."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from tests.faults.fault import Blow
from tests.faults.roles import Role

DOWN_S_MAX = 2.0
STARTS_CUT_SHORT = 2


@asynccontextmanager
async def role_killed(blow: Blow) -> AsyncIterator[None]:
    """kill -9 of one role at any moment, and a restart."""
    victim = blow.rng.choice(blow.world.roles)
    await _kill(blow, victim)
    await asyncio.sleep(blow.rng.uniform(0, DOWN_S_MAX))
    victim.start()
    yield


@asynccontextmanager
async def api_killed(blow: Blow) -> AsyncIterator[None]:
    """kill -9 of a process that takes commands; it stays away for as long as the fault holds."""
    victim = blow.rng.choice(blow.world.of("api"))
    await _kill(blow, victim)
    try:
        yield
    finally:
        victim.start()


@asynccontextmanager
async def all_roles_killed(blow: Blow) -> AsyncIterator[None]:
    """kill -9 of every role at once; they come back in any order."""
    victims = blow.world.roles.copy()
    async with asyncio.TaskGroup() as tasks:
        for victim in victims:
            tasks.create_task(_kill(blow, victim))
    blow.rng.shuffle(victims)
    for victim in victims:
        await asyncio.sleep(blow.rng.uniform(0, 0.5))
        victim.start()
    yield


@asynccontextmanager
async def roles_churned(blow: Blow) -> AsyncIterator[None]:
    """One role after the other is killed and started, in any order, while the last ones are still starting."""
    for victim in blow.rng.sample(blow.world.roles, len(blow.world.roles)):
        await _kill(blow, victim)
        victim.start()
        await asyncio.sleep(blow.rng.uniform(0, 1.0))
    yield


@asynccontextmanager
async def killed_while_starting(blow: Blow) -> AsyncIterator[None]:
    """kill -9 while a role reads what it saved and folds the rest, before it is ready: a loop of crashes."""
    victim = blow.rng.choice(blow.world.roles)
    await _kill(blow, victim)
    for _ in range(STARTS_CUT_SHORT):
        victim.start()
        await asyncio.sleep(blow.rng.uniform(0.2, 0.8))
        blow.evidence["killed before ready"] += not victim.is_ready
        await _kill(blow, victim)
    victim.start()
    yield


@asynccontextmanager
async def state_lost(blow: Blow) -> AsyncIterator[None]:
    """A role comes back without its saved state, and folds the log from the beginning."""
    world = blow.world
    name = blow.rng.choice(sorted(world.disks))
    (victim,) = (role for role in world.roles if role.name == name)
    await _kill(blow, victim)
    blow.evidence["files lost"] = _remove(world.states[name])
    victim.start()
    yield


@asynccontextmanager
async def role_frozen(blow: Blow) -> AsyncIterator[None]:
    """SIGSTOP of one role for longer than the others wait for it, then SIGCONT: it wakes up in the past."""
    async with frozen(blow, blow.rng.choice(blow.world.roles)):
        yield


@asynccontextmanager
async def all_roles_frozen(blow: Blow) -> AsyncIterator[None]:
    """Every role stands still, as when the machine under them does."""
    for victim in blow.world.roles:
        victim.send(signal.SIGSTOP)
    try:
        yield
        blow.evidence["seen stopped"] = sum(victim.state() == "T" for victim in blow.world.roles)
    finally:
        for victim in blow.world.roles:
            victim.send(signal.SIGCONT)


@asynccontextmanager
async def out_of_files(blow: Blow) -> AsyncIterator[None]:
    """A role may open no more files or connections than it has."""
    victim = blow.rng.choice(blow.world.of("api"))
    soft, hard = resource.prlimit(victim.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (_lowest_free(victim), hard))
    blow.evidence["connections refused for want of files"] = 0
    try:
        for _ in range(20):
            blow.evidence["connections refused for want of files"] += not await victim.metrics()
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended meanwhile, and the next one has its own limit
            resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def frozen(blow: Blow, victim: Role) -> AsyncIterator[None]:
    """This role stands still."""
    victim.send(signal.SIGSTOP)
    try:
        yield
        blow.evidence["seen stopped"] += victim.state() == "T"
    finally:
        victim.send(signal.SIGCONT)


async def _kill(blow: Blow, victim: Role) -> None:
    await victim.kill()
    blow.evidence["killed"] += 1


def _lowest_free(victim: Role) -> int:
    """The number that the next file of this process would get."""
    used = {int(path.name) for path in Path(f"/proc/{victim.pid}/fd").iterdir()}
    return next(number for number in count() if number not in used)


def _remove(folder: Path) -> int:
    """How many files there were."""
    count = sum(path.is_file() for path in folder.rglob("*"))
    shutil.rmtree(folder)
    return count

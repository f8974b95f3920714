"""Processes of the plane that are killed, frozen, out of file descriptors, or restarted without their saved state."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from tests.faults.fault import ActiveFault
from tests.faults.roles import Role

DOWN_S_MAX = 2.0
STARTS_CUT_SHORT = 2


@asynccontextmanager
async def role_killed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """SIGKILL of one role, and a restart after a random pause."""
    victim = active_fault.rng.choice(active_fault.world.roles)
    await _kill(active_fault, victim)
    await asyncio.sleep(active_fault.rng.uniform(0, DOWN_S_MAX))
    victim.start()
    yield


@asynccontextmanager
async def api_killed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """SIGKILL of an API process, which stays down while the fault holds."""
    victim = active_fault.rng.choice(active_fault.world.roles_of("api"))
    await _kill(active_fault, victim)
    try:
        yield
    finally:
        victim.start()


@asynccontextmanager
async def all_roles_killed(active_fault: ActiveFault) -> AsyncIterator[None]:
    """SIGKILL of every role at once; they restart in any order."""
    victims = active_fault.world.roles.copy()
    async with asyncio.TaskGroup() as tasks:
        for victim in victims:
            tasks.create_task(_kill(active_fault, victim))
    active_fault.rng.shuffle(victims)
    for victim in victims:
        await asyncio.sleep(active_fault.rng.uniform(0, 0.5))
        victim.start()
    yield


@asynccontextmanager
async def roles_churned(active_fault: ActiveFault) -> AsyncIterator[None]:
    """All roles are killed and restarted one by one, in random order, while earlier ones are still starting."""
    for victim in active_fault.rng.sample(active_fault.world.roles, len(active_fault.world.roles)):
        await _kill(active_fault, victim)
        victim.start()
        await asyncio.sleep(active_fault.rng.uniform(0, 1.0))
    yield


@asynccontextmanager
async def killed_while_starting(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A crash loop: SIGKILL while a role loads its saved state and folds the rest of the log."""
    victim = active_fault.rng.choice(active_fault.world.roles)
    await _kill(active_fault, victim)
    for _ in range(STARTS_CUT_SHORT):
        victim.start()
        await asyncio.sleep(active_fault.rng.uniform(0.2, 0.8))
        active_fault.evidence["killed before ready"] += not victim.is_ready
        await _kill(active_fault, victim)
    victim.start()
    yield


@asynccontextmanager
async def state_lost(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role restarts without its saved state, and folds the log from the beginning."""
    world = active_fault.world
    name = active_fault.rng.choice(sorted(world.disks))
    (victim,) = (role for role in world.roles if role.name == name)
    await _kill(active_fault, victim)
    active_fault.evidence["files lost"] = _remove(world.states[name])
    victim.start()
    yield


@asynccontextmanager
async def role_frozen(active_fault: ActiveFault) -> AsyncIterator[None]:
    """SIGSTOP of one role for longer than the timeouts of the others, then SIGCONT: it resumes with an old state."""
    async with frozen(active_fault, active_fault.rng.choice(active_fault.world.roles)):
        yield


@asynccontextmanager
async def all_roles_frozen(active_fault: ActiveFault) -> AsyncIterator[None]:
    """Every role is frozen, as when their machine is suspended."""
    for victim in active_fault.world.roles:
        victim.send(signal.SIGSTOP)
    try:
        yield
        active_fault.evidence["seen stopped"] = sum(victim.state() == "T" for victim in active_fault.world.roles)
    finally:
        for victim in active_fault.world.roles:
            victim.send(signal.SIGCONT)


@asynccontextmanager
async def out_of_files(active_fault: ActiveFault) -> AsyncIterator[None]:
    """A role cannot open more files or connections."""
    victim = active_fault.rng.choice(active_fault.world.roles_of("api"))
    soft, hard = resource.prlimit(victim.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (_lowest_free(victim), hard))
    active_fault.evidence["connections refused without file descriptors"] = 0
    try:
        for _ in range(20):
            active_fault.evidence["connections refused without file descriptors"] += not await victim.metrics()
        yield
    finally:
        with suppress(ProcessLookupError):  # the process has ended, and the next one has its own limit
            resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def frozen(active_fault: ActiveFault, victim: Role) -> AsyncIterator[None]:
    """Freeze this role during the context."""
    victim.send(signal.SIGSTOP)
    try:
        yield
        active_fault.evidence["seen stopped"] += victim.state() == "T"
    finally:
        victim.send(signal.SIGCONT)


async def _kill(active_fault: ActiveFault, victim: Role) -> None:
    await victim.kill()
    active_fault.evidence["killed"] += 1


def _lowest_free(victim: Role) -> int:
    """The file descriptor that the process would get next."""
    used = {int(path.name) for path in Path(f"/proc/{victim.pid}/fd").iterdir()}
    return next(number for number in count() if number not in used)


def _remove(folder: Path) -> int:
    """Remove the folder; returns the number of its files."""
    count = sum(path.is_file() for path in folder.rglob("*"))
    shutil.rmtree(folder)
    return count

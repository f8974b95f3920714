"""`dpuplane agent`: the agents of DPUs, in a process of their own, connected to relays by WebSocket."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.cli.processes.bridge_options import bridge_options, bridges_of, flow_layout
from deploy.cli.shared.param_types import Folder, addresses
from deploy.cli.shared.tls import certificates_of, tls_options
from deploy.composition.device_backends import DEVICE_BACKENDS, NETWORK_BACKENDS, DeviceContext
from drivers.agents.network_store import FileNetworkStore, MemoryNetworkStore, NetworkStore
from drivers.agents.store import FileTableStore, MemoryTableStore, TableStore
from drivers.backends.bridge_lock import BridgeLock
from eventstore.errors import FatalError
from projections import field_checks
from projections.field_checks import PATH_QUOTED, quoted

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates

logger = logging.getLogger(__name__)


def _zone(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    return _named(field_checks.check_zone("zone", given), given)


def _dpus(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> Sequence[str]:
    if len(set(given)) < len(given):
        raise click.BadParameter("each DPU must be named once")
    return [_named(field_checks.check_name("dpu", name), name) for name in given]


def _named(fault: str | None, given: str) -> str:
    if fault is not None:
        raise click.BadParameter(fault)
    return given


@click.command(
    epilog="\b\nExample: dpuplane agent --relay 127.0.0.1:7082,127.0.0.1:8082 --zone rack-1 --dpu dpu-1 --state state"
)
@click.option(
    "--relay",
    "relays",
    required=True,
    callback=addresses,
    metavar="HOST:PORT,...",
    help="Relays; if one fails, the next is used.",
)
@click.option("--zone", required=True, callback=_zone, metavar="ZONE", help="The DPU's zone.")
@click.option(
    "--dpu",
    "dpus",
    required=True,
    multiple=True,
    callback=_dpus,
    metavar="NAME",
    help="The DPU's name; may be repeated.",
)
@click.option(
    "--state",
    type=Folder(),
    metavar="DIR",
    help="Keep the last good table and network document in this folder over restarts.  [in memory only]",
)
@click.option(
    "--backend",
    type=click.Choice(list(DEVICE_BACKENDS)),
    default="simulated",
    show_default=True,
    metavar="NAME",
    help=f"The DPU's data plane: {', '.join(DEVICE_BACKENDS)}.",
)
@bridge_options
@click.option("--seed", type=int, help="Seed of every random choice.  [a new one]")
@tls_options
def agent(
    *,
    relays: list[str],
    zone: str,
    dpus: list[str],
    state: Path | None,
    backend: str,
    bridges: list[str],
    openvswitch_run: Path,
    table: int,
    hook_priority: int,
    chain_table: int,
    allowed: str,
    seed: int | None,
    **tls: Path | None,
) -> None:
    """Run the agent of a registered DPU, or of several DPUs of a zone, until SIGTERM or SIGINT.

    The agent connects to a relay, checks every frame and network document, keeps the last good ones, and reports their
    versions. The simulated backend is a table in this process, which forwards and drops no packets. The openvswitch
    backend keeps the rules and the network in a bridge of Open vSwitch, in tables of their own. Prints one line that
    begins with `ready`.
    """
    from deploy.host.heap import return_large_buffers
    from deploy.process.life import run_until_signal
    from deploy.telemetry.logs import configure_logs

    return_large_buffers()
    layout = flow_layout(table=table, hook_priority=hook_priority, chain_table=chain_table, allowed=allowed)
    found = bridges_of(backend, dpus, bridges, openvswitch_run, layout)
    configure_logs()
    rng = random.Random(seed)
    contexts = {
        dpu: DeviceContext(random.Random(rng.random()), bridge) for dpu, bridge in zip(dpus, found, strict=True)
    }
    serving = _serve(relays, zone, contexts, state, backend, certificates=certificates_of(**tls))
    sys.exit(run_until_signal(serving))


async def _serve(
    relays: list[str],
    zone: str,
    contexts: Mapping[str, DeviceContext],
    state: Path | None,
    backend: str,
    *,
    certificates: Certificates | None,
) -> None:
    from deploy.tls.dialing import dialing
    from drivers.agents.agent import Agent, AgentIdentity
    from drivers.agents.network import AgentNetwork

    async with dialing(certificates) as dialer, asyncio.TaskGroup() as tasks:
        for dpu, context in contexts.items():
            identity = AgentIdentity(zone, dpu, boot_id=f"{context.rng.getrandbits(64):016x}")
            device, store = DEVICE_BACKENDS[backend](context), _store(state, dpu, zone)
            running, network = [device.run], None
            if (networks := NETWORK_BACKENDS.get(backend)) is not None:
                network_device = networks(context)
                network = AgentNetwork(network_device, _network_store(state, dpu, zone))
                running.append(network_device.run)
            serving = Agent(
                identity, relays, dial=dialer.dial, device=device, store=store, rng=context.rng, network=network
            )
            tasks.create_task(_run_locked(context, [*running, serving.run]))
        sys.stdout.write(f"ready dpu={','.join(contexts)} zone={zone} relays={','.join(relays)}\n")
        sys.stdout.flush()


async def _run_locked(context: DeviceContext, parts: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run the parts of an agent, from when it has the lock of its bridge."""
    async with asyncio.TaskGroup() as tasks:
        if (bridge := context.bridge) is not None:
            lock = BridgeLock(bridge.name, bridge.database, rng=context.rng)
            tasks.create_task(lock.run())
            await lock.acquired()
        for run in parts:
            tasks.create_task(run())


def _store(state: Path | None, dpu: str, zone: str) -> TableStore:
    """The store of the agent's table. An existing folder that cannot be written, such as on a failed disk, does not
    stop the agent: without an agent, the DPU would have no rules at all."""
    if state is None:
        return MemoryTableStore()
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FatalError(f"state: {quoted(str(state), PATH_QUOTED)} cannot be created: {error.strerror}") from error
    store = FileTableStore(state / f"{dpu.replace('/', '@')}.table", dpu, zone)
    try:
        store.check()
    except OSError as error:
        logger.error(
            "state directory %r is not writable, a restart of the agent loses its table: %s", str(state), error.strerror
        )
    return store


def _network_store(state: Path | None, dpu: str, zone: str) -> NetworkStore:
    """The store of the agent's network document, beside that of its table."""
    if state is None:
        return MemoryNetworkStore()
    return FileNetworkStore(state / f"{dpu.replace('/', '@')}.network", dpu, zone)

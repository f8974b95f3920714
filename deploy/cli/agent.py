"""`dpuplane agent`: the agent of one DPU, in a process of its own, connected to relays by WebSocket."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.param_types import Folder, addresses
from deploy.cli.tls import certificates_of, tls_options
from deploy.composition.device_backends import DEVICE_BACKENDS
from drivers.agents.store import FileTableStore, MemoryTableStore, TableStore
from eventstore.errors import FatalError
from projections import field_checks
from projections.field_checks import PATH_QUOTED, quoted

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates

logger = logging.getLogger(__name__)


def _zone(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    return _named(field_checks.check_zone("zone", given), given)


def _dpu(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    return _named(field_checks.check_name("dpu", given), given)


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
@click.option("--dpu", required=True, callback=_dpu, metavar="NAME", help="The DPU's name.")
@click.option(
    "--state",
    type=Folder(),
    metavar="DIR",
    help="Keep the last good table in this folder over restarts.  [in memory only]",
)
@click.option(
    "--backend",
    type=click.Choice(list(DEVICE_BACKENDS)),
    default="simulated",
    show_default=True,
    metavar="NAME",
    help=f"The DPU's data plane: {', '.join(DEVICE_BACKENDS)}.",
)
@click.option("--seed", type=int, help="Seed of every random choice.  [a new one]")
@tls_options
def agent(
    *, relays: list[str], zone: str, dpu: str, state: Path | None, backend: str, seed: int | None, **tls: Path | None
) -> None:
    """Run the agent of one registered DPU, until SIGTERM or SIGINT.

    The agent connects to a relay, checks every frame, keeps the last good table, and reports its version. The
    simulated backend is a table in this process, which forwards and drops no packets. Prints one line that begins
    with `ready`.
    """
    from deploy.process.run import run_until_signal
    from deploy.telemetry.logs import configure_logs

    configure_logs()
    serving = _serve(relays, zone, dpu, state, backend, rng=random.Random(seed), certificates=certificates_of(**tls))
    sys.exit(run_until_signal(serving))


async def _serve(
    relays: list[str],
    zone: str,
    dpu: str,
    state: Path | None,
    backend: str,
    *,
    rng: random.Random,
    certificates: Certificates | None,
) -> None:
    from deploy.tls.security import dialing
    from drivers.agents.agent import Agent, AgentIdentity

    identity = AgentIdentity(zone, dpu, boot_id=f"{rng.getrandbits(64):016x}")
    async with dialing(certificates) as dialer:
        device = DEVICE_BACKENDS[backend](rng)
        serving = Agent(identity, relays, dial=dialer.dial, device=device, store=_store(state, dpu, zone), rng=rng)
        sys.stdout.write(f"ready dpu={dpu} zone={zone} relays={','.join(relays)}\n")
        sys.stdout.flush()
        await serving.run()


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

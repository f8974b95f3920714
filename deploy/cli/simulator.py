"""`dpuplane simulator`: simulated DPUs in a process of their own, connected to relays by WebSocket."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.param_types import FiniteRange, addresses
from deploy.cli.simulated_failures import fail_option
from deploy.cli.tls import certificates_of, tls_options
from deploy.settings.addresses import Address, parse_address
from deploy.settings.zone_names import parse_zones
from drivers.backends.simulated_failures import Failure, parse_failures

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates

SERVER_DEFAULT = "127.0.0.1:7080"


@click.command(epilog="\b\nExample: dpuplane simulator --relay 127.0.0.1:7082,127.0.0.1:8082 --dpus-per-zone 100")
@click.option(
    "--relay",
    "relays",
    required=True,
    callback=addresses,
    metavar="HOST:PORT,...",
    help="Relays; if one fails, the next is used.",
)
@click.option("--dpus-per-zone", type=click.IntRange(1, 10_000), required=True, help="Simulated DPUs in each zone.")
@click.option(
    "--server",
    callback=addresses,
    default=SERVER_DEFAULT,
    envvar="DPUPLANE_SERVER",
    show_default=True,
    metavar="HOST:PORT,...",
    help="API of the plane, to list zones and register DPUs.",
)
@click.option("--zones", default="", metavar="Z,...", help="Only these zones.  [every zone, also new ones]")
@click.option("--bmc", default="127.0.0.1:0", metavar="HOST:PORT", help="Address of the simulated BMCs.")
@click.option("--loss", type=FiniteRange(0, 1), default=0.0, help="Share of frames that are lost.")
@click.option("--latency", "latency_ms", type=FiniteRange(0), default=0.0, help="Mean time to apply a frame, in ms.")
@fail_option("--fail")
@click.option("--seed", type=int, help="Seed of every random choice.  [a new one]")
@tls_options
def simulator(
    *,
    relays: list[str],
    dpus_per_zone: int,
    server: list[str],
    zones: str,
    bmc: str,
    loss: float,
    latency_ms: float,
    fail: str | None,
    seed: int | None,
    **tls: Path | None,
) -> None:
    """Run simulated DPUs for every zone of a plane, until SIGTERM or SIGINT.

    The DPUs register themselves, connect to relays as agents do, and act as their BMCs. Prints one line that begins
    with `ready` and has the addresses of the BMCs.
    """
    from deploy.process.life import run_until_signal
    from deploy.telemetry.logs import configure_logs

    try:
        listen = parse_address(bmc)
    except ValueError as error:
        raise click.UsageError(f"bmc: {error}") from error
    try:
        wanted = parse_zones(zones)
        failures = parse_failures("fail", fail or "")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    configure_logs()
    rng = random.Random(seed)
    simulating = _simulate(
        relays=relays,
        dpus_per_zone=dpus_per_zone,
        servers=server,
        zones=wanted,
        listen=listen,
        loss=loss,
        latency_ms=latency_ms,
        failures=failures,
        rng=rng,
        certificates=certificates_of(**tls),
    )
    sys.exit(run_until_signal(simulating))


async def _simulate(
    *,
    relays: list[str],
    dpus_per_zone: int,
    servers: list[str],
    zones: frozenset[str],
    listen: Address,
    loss: float,
    latency_ms: float,
    failures: Sequence[Failure],
    rng: random.Random,
    certificates: Certificates | None,
) -> None:
    from aiohttp import web

    from deploy.clock import now_ms
    from deploy.process.remote_registrar import RemoteRegistrar
    from deploy.tls.dialing import dialing
    from drivers.backends.http_bmc import application
    from drivers.backends.simulated import DeviceFaults
    from drivers.backends.simulated_bmc import SimulatedBmcs
    from drivers.simulators.simulator import NAMING, Simulator

    async with AsyncExitStack() as stack:
        bmcs = SimulatedBmcs(now_s=asyncio.get_running_loop().time, rng=rng, failures=failures)
        runner = web.AppRunner(application(bmcs.device), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, listen.host, listen.port).start()
        bmc = Address(listen.host, runner.addresses[0][1])
        registrar = RemoteRegistrar(servers, now_ms=now_ms, rng=rng, zones=zones, certificates=certificates)
        stack.push_async_callback(registrar.close)
        dialer = await stack.enter_async_context(dialing(certificates))
        devices = Simulator(
            registrar,
            relays,
            dial=dialer.dial,
            rng=rng,
            dpus_per_zone=dpus_per_zone,
            faults=DeviceFaults(frame_loss=loss, latency_ms=latency_ms),
            naming=NAMING._replace(bmc_address=f"http://{bmc}/{NAMING.dpu}"),
        )
        sys.stdout.write(f"ready bmc={bmc} relays={','.join(relays)}\n")
        sys.stdout.flush()
        await devices.run()

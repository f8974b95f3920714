"""`dpuplane simulator`: simulated DPUs in a process of their own, connected to relays by WebSocket."""

from __future__ import annotations

import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.shared.param_types import FiniteRange, Folder, addresses
from deploy.cli.shared.tls import certificates_of, tls_options
from deploy.settings.addresses import parse_address
from deploy.settings.zone_names import parse_zones
from eventstore.errors import FatalError

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates
    from drivers.simulators.redfish.bmcs import BmcOptions

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
@click.option(
    "--bmc",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first simulated BMC. Each DPU has one, at the next free port; 0 takes any.",
)
@click.option(
    "--bmc-folder",
    type=Folder(),
    metavar="DIR",
    help="Files for `dpuplane serve`: ca.pem for --bmc-ca, password for --bmc-password-file. Missing ones are created."
    "  [without it, BMCs sign their certificates themselves, anew at each start]",
)
@click.option(
    "--image-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Authority of the servers of images, such as images/tls.pem of the plane's data.  [those of the system]",
)
@click.option(
    "--fail", "failing", type=FiniteRange(0, 1), default=0.0, help="Share of installations that fail on the device."
)
@click.option("--loss", type=FiniteRange(0, 1), default=0.0, help="Share of frames that are lost.")
@click.option("--latency", "latency_ms", type=FiniteRange(0), default=0.0, help="Mean time to apply a frame, in ms.")
@click.option("--seed", type=int, help="Seed of every random choice.  [a new one]")
@tls_options
def simulator(
    *,
    relays: list[str],
    dpus_per_zone: int,
    server: list[str],
    zones: str,
    bmc: str,
    bmc_folder: Path | None,
    image_ca: Path | None,
    failing: float,
    loss: float,
    latency_ms: float,
    seed: int | None,
    **tls: Path | None,
) -> None:
    """Run simulated DPUs for every zone of a plane, until SIGTERM or SIGINT.

    The DPUs register themselves and connect to relays as agents do. Each has a BMC that speaks Redfish over HTTPS, with
    the factory password at first; `dpuplane serve` needs a --bmc-password-file to install them. Prints one line that
    begins with `ready`.
    """
    from deploy.clock import now_ms
    from deploy.process.life import run_until_signal
    from deploy.process.simulated_bmcs import simulated_bmc_options
    from deploy.telemetry.logs import configure_logs

    try:
        listen = parse_address(bmc)
    except ValueError as error:
        raise click.UsageError(f"bmc: {error}") from error
    try:
        wanted = parse_zones(zones)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        bmc_options = simulated_bmc_options(listen, bmc_folder, image_ca, failing, now_ms=now_ms())
    except FatalError as error:
        raise click.UsageError(str(error)) from error
    configure_logs()
    rng = random.Random(seed)
    simulating = _simulate(
        relays=relays,
        dpus_per_zone=dpus_per_zone,
        servers=server,
        zones=wanted,
        bmc_options=bmc_options,
        loss=loss,
        latency_ms=latency_ms,
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
    bmc_options: BmcOptions,
    loss: float,
    latency_ms: float,
    rng: random.Random,
    certificates: Certificates | None,
) -> None:
    from deploy.clock import now_ms, utc_now
    from deploy.process.remote_registrar import RemoteRegistrar
    from deploy.tls.dialing import dialing
    from drivers.backends.simulated import DeviceFaults
    from drivers.simulators.redfish.bmcs import RedfishBmcs
    from drivers.simulators.simulator import Simulator

    async with AsyncExitStack() as stack:
        bmcs = await stack.enter_async_context(RedfishBmcs.serving(bmc_options, now=utc_now, rng=rng))
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
            bmcs=bmcs,
        )
        sys.stdout.write(f"ready relays={','.join(relays)}\n")
        sys.stdout.flush()
        await devices.run()

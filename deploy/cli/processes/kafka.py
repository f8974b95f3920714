"""`dpuplane kafka`: local Kafka brokers, in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import click

from deploy.cli.shared.param_types import Folder
from deploy.kafka.brokers import Brokers
from deploy.kafka.jars import NoKafka, cache_folder

EXAMPLES = """
\b
Examples:
  dpuplane kafka --data kafka
  dpuplane kafka --brokers 1 --data kafka --port 9092
  dpuplane kafka --controllers 3 --data kafka
"""


@click.command(epilog=EXAMPLES)
@click.option("--brokers", "count", type=click.IntRange(1, 9), default=3, show_default=True, help="Number of brokers.")
@click.option(
    "--controllers",
    type=click.IntRange(0, 5),
    default=0,
    show_default=True,
    help="Number of controllers apart from the brokers, an odd number: most of them must be up. With 0, each broker"
    " is a controller too, and replacing a broker that was the active controller takes 0.5 s longer.",
)
@click.option(
    "--data",
    type=Folder(),
    required=True,
    help="Folder of all data; a restart continues with it.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Port of the first broker; the next ports are those of the others.  [free ones]",
)
def kafka(count: int, controllers: int, data: Path, port: int | None) -> None:
    """Run local Kafka brokers with the recommended settings.

    Kafka is downloaded once, into a cache folder (DPUPLANE_CACHE, or dpuplane in the user's cache folder). Prints one
    line `ready HOST:PORT,...` once every broker responds. A broker that ends or is killed is started again. SIGTERM
    ends all of them cleanly.
    """
    try:
        cache = cache_folder(os.environ)
        asyncio.run(_run(Brokers(data.absolute(), cache, count=count, controllers=controllers, base_port=port)))
    except NoKafka as error:
        click.echo(f"dpuplane: {error}", err=True)
        sys.exit(3)


async def _run(brokers: Brokers) -> None:
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        async with brokers:
            click.echo(f"ready {brokers.bootstrap}")
            await brokers.keep(lambda ending: click.echo(f"dpuplane: {ending}", err=True))
    except asyncio.CancelledError:
        click.echo("dpuplane: stopped", err=True)

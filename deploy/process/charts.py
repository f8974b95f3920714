"""The reader of charts of a process: its connections, by the rules of the image store for addresses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import aiohttp

from deploy.settings.settings import Settings
from drivers.charts.chart_reader import ChartReader
from drivers.charts.charts import Charts
from drivers.charts.repository_secrets import RepositorySecrets
from drivers.images.sources import AllowedHosts, CheckedResolver, parse_hosts
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from schemas.kubernetes.api import KubernetesApi

CONNECTIONS_MAX = 8


async def read_charts(
    settings: Settings,
    replica: Replica,
    ranks: Ranks,
    apis: Callable[[str], KubernetesApi | None],
    *,
    now_ms: Callable[[], int],
    rng: Random,
) -> None:
    """Read the charts of services until cancelled. `apis` has the connections to source clusters."""
    hosts, is_exclusive = parse_hosts(settings.image_hosts)
    allowed = AllowedHosts(hosts, is_exclusive=is_exclusive)
    connector = aiohttp.TCPConnector(
        resolver=CheckedResolver(aiohttp.ThreadedResolver(), allowed), limit=CONNECTIONS_MAX
    )
    async with aiohttp.ClientSession(connector=connector) as session:
        reader, secrets = ChartReader(session, allowed), RepositorySecrets(apis)
        await Charts(
            reader, secrets, replica, ranks, accepts=lambda source: apis(source) is not None, now_ms=now_ms, rng=rng
        ).run()

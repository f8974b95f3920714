"""`dpuplane serve`: a process of the plane, in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from deploy.cli.kafka_options import kafka_options
from deploy.cli.simulated_failures import fail_option
from deploy.settings.environment import unknown_variables
from deploy.settings.settings import BadSettings, load_settings

logger = logging.getLogger(__name__)

EXAMPLES = """
\b
Examples:
  dpuplane serve --data plane
  dpuplane serve --data plane --simulate 50 --listen 127.0.0.1:0
  dpuplane serve --data plane --simulate 2 --simulate-fail install:device:2 --simulate-fail reboot:operator:1
  dpuplane serve --kafka broker1:9092,broker2:9092 --role relay --zones rack-1,rack-2
  dpuplane serve --data p2 --tls-cert certs/plane@local.pem --tls-key certs/plane@local.key --tls-client-ca certs/ca.pem

Every flag can also come from the environment (DPUPLANE_TOPIC_PREFIX for --topic-prefix) or from the YAML file of
--config (topic_prefix: ...; not --log-level and --log-format). A flag overrides the environment, which overrides
the file.
"""


@click.command(epilog=EXAMPLES)
@click.option("--data", metavar="DIR", help="Keep the log in this folder: one process with every role.")
@click.option("--kafka", metavar="HOST:PORT,...", help="Keep the log in this Kafka cluster: any number of processes.")
@kafka_options
@click.option("--topic-prefix", metavar="NAME", help="Prefix of the names of the plane's topics.  [dpuplane]")
@click.option("--partitions", metavar="N", help="Partitions of a new log; an existing log keeps its number.  [12]")
@click.option("--role", metavar="ROLE", help="all, api, relay, provisioner or decisions.  [all]")
@click.option("--zones", metavar="Z,...", help="Zones that the relay serves.  [every zone]")
@click.option(
    "--listen", metavar="HOST:PORT", help="gRPC, commands and queries; port 0 takes a free one.  [127.0.0.1:7080]"
)
@click.option("--http", metavar="HOST:PORT", help="The page, /metrics, /healthz, /readyz.  [127.0.0.1:7081]")
@click.option("--agents", metavar="HOST:PORT", help="WebSocket of the DPUs' agents.  [127.0.0.1:7082]")
@click.option("--simulate", metavar="N", help="Simulate N DPUs in every zone; no hardware is written to.")
@fail_option("--simulate-fail")
@click.option("--state", metavar="DIR", help="Folder of saved state, for a fast restart.")
@click.option(
    "--state-checkpoints",
    metavar="N",
    help="Checkpoints of the saved state that are kept, for queries of the past.  [24]",
)
@click.option(
    "--state-checkpoints-mb", metavar="N", help="MB of disk that they may take beyond the present state.  [4096]"
)
@click.option("--decisions/--no-decisions", default=None, help="On Kafka, write decisions to a topic.  [decisions]")
@click.option(
    "--as-of-servers", metavar="N", help="Processes that answer queries of the past (--as-of); 0 for none.  [2]"
)
@click.option("--name", metavar="NAME", help="Name of this replica.  [host name and a random part]")
@click.option("--traces", metavar="URL", help="Send traces of sampled commands to this OTLP collector.  [none]")
@click.option("--traces-share", metavar="SHARE", help="Share of the calls that are traced, from 0 to 1.  [0.01]")
@click.option("--seed", metavar="N", help="Seed of every random choice.  [a new one]")
@click.option("--insecure", is_flag=True, default=None, help="Allow listeners off the loopback without TLS.")
@click.option("--tls-cert", metavar="FILE", help="This process's certificate; every listener then uses mutual TLS.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--tls-client-ca", metavar="FILE", help="Certificate authorities that are trusted.")
@click.option("--tls-revoked", metavar="FILE", help="List of the serial numbers of revoked certificates.")
@click.option(
    "--trust-domain", metavar="NAME", help="Trust domain in the URI names of certificates.  [that of --tls-cert]"
)
@click.option("--reflection/--no-reflection", default=None, help="Serve gRPC reflection.  [only without TLS]")
@click.option("--calls-per-second", metavar="N", help="API calls per second of one principal.  [50000]")
@click.option("--calls-burst", metavar="N", help="Burst of API calls of one principal after a pause.  [50000]")
@click.option("--calls-at-once", metavar="N", help="Concurrent API calls of one principal.  [5000]")
@click.option("--streams-per-connection", metavar="N", help="Concurrent API calls on one connection.  [1000]")
@click.option("--http-connections", metavar="N", help="Maximum of open HTTP connections.  [500]")
@click.option("--api-connections", metavar="N", help="Maximum of open API connections.  [2000]")
@click.option("--agent-connections", metavar="N", help="Maximum of open connections of agents.  [10000]")
@click.option(
    "--address-share", metavar="SHARE", help="Share of the connections of --http and --agents for one address.  [0.25]"
)
@click.option(
    "--config",
    metavar="FILE",
    envvar="DPUPLANE_CONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file of settings.",
)
@click.option(
    "--log-level",
    envvar="DPUPLANE_LOG_LEVEL",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
)
@click.option(
    "--log-format",
    envvar="DPUPLANE_LOG_FORMAT",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: key=value.",
)
def serve(config: Path | None, log_level: str, log_format: str, **flags: object) -> None:
    """Run a process of the plane: the log, the folds, the API, relays, provisioners and decisions, or only one role.

    Prints one line that begins with `ready` and has its addresses, once it serves. SIGTERM ends it cleanly.

    DPUs connect to --agents. With --simulate, DPUs and their BMCs are simulated in this process, and no hardware is
    written to. `dpuplane agent` and `dpuplane simulator` simulate devices in processes of their own.
    """
    unknown = unknown_variables(os.environ)
    try:
        settings = load_settings(flags, config, os.environ)
    except BadSettings as mistake:
        raise click.UsageError("\n".join([str(mistake), *unknown])) from mistake
    from deploy.process.run import run_process
    from deploy.telemetry.logs import configure_logs

    configure_logs(log_level, log_format)
    for sentence in unknown:
        logger.warning("unknown setting ignored: %s", sentence)
    sys.exit(run_process(settings))

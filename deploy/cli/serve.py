"""`dpuplane serve`: one process of the plane, in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from deploy.cli.kafka_options import kafka_options
from deploy.cli.simulated_failures import fail_option
from deploy.environment import unknown_variables
from deploy.settings import BadSettings, load_settings

logger = logging.getLogger(__name__)

EXAMPLES = """
\b
Examples:
  dpuplane serve --data plane
  dpuplane serve --data plane --simulate 50 --listen 127.0.0.1:0
  dpuplane serve --data plane --simulate 2 --simulate-fail install:device:2 --simulate-fail reboot:operator:1
  dpuplane serve --kafka broker1:9092,broker2:9092 --role relay --zones rack-1,rack-2
  dpuplane serve --data p2 --tls-cert certs/plane@local.pem --tls-key certs/plane@local.key --tls-client-ca certs/ca.pem

Every flag can come from the environment instead (DPUPLANE_TOPIC_PREFIX for --topic-prefix) or from the YAML file that
--config names (topic_prefix: ...; --log-level and --log-format cannot). A flag goes before the environment, and that
before the file.
"""


@click.command(epilog=EXAMPLES)
@click.option("--data", metavar="DIR", help="Keep the log in this folder: one process with every role.")
@click.option("--kafka", metavar="HOST:PORT,...", help="Keep the log in this Kafka cluster: any number of processes.")
@kafka_options
@click.option("--topic-prefix", metavar="NAME", help="What the plane's topic names begin with.  [dpuplane]")
@click.option("--partitions", metavar="N", help="Partitions of a new log; an existing log keeps its own.  [12]")
@click.option("--role", metavar="ROLE", help="all, api, relay or provisioner.  [all]")
@click.option("--zones", metavar="Z,...", help="The zones a relay serves.  [every zone]")
@click.option("--listen", metavar="HOST:PORT", help="gRPC, commands and queries; port 0: a free one.  [127.0.0.1:7080]")
@click.option("--http", metavar="HOST:PORT", help="The page, /metrics, /healthz, /readyz.  [127.0.0.1:7081]")
@click.option("--agents", metavar="HOST:PORT", help="WebSocket of the DPUs' agents.  [127.0.0.1:7082]")
@click.option("--simulate", metavar="N", help="Make up N simulated DPUs in every zone: no hardware is written.")
@fail_option("--simulate-fail")
@click.option("--state", metavar="DIR", help="Save folded state here, so that a restart is quick.")
@click.option(
    "--state-checkpoints",
    metavar="N",
    help="Checkpoints of the saved state that are kept, for queries of the past.  [24]",
)
@click.option("--state-checkpoints-mb", metavar="N", help="Disk that they may take beyond the present one.  [4096]")
@click.option("--decisions/--no-decisions", default=None, help="Write decisions to a topic, for analysts.  [decisions]")
@click.option("--as-of-servers", metavar="N", help="Moments of the past (--as-of) kept open at once; 0 for none.  [2]")
@click.option("--name", metavar="NAME", help="Name of this replica.  [host name and a random part]")
@click.option("--traces", metavar="URL", help="Send traces of some commands to this OTLP collector.  [none]")
@click.option("--traces-share", metavar="SHARE", help="How many of the calls are followed, from 0 to 1.  [0.01]")
@click.option("--seed", metavar="N", help="Seed of every random choice.  [a fresh one]")
@click.option("--insecure", is_flag=True, default=None, help="Allow listeners off the loopback without TLS.")
@click.option("--tls-cert", metavar="FILE", help="This process's certificate; every listener then speaks mutual TLS.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--tls-client-ca", metavar="FILE", help="The authorities whose certificates are believed.")
@click.option("--tls-revoked", metavar="FILE", help="Serial numbers of certificates that are revoked, one a line.")
@click.option("--trust-domain", metavar="NAME", help="What certificates' URI names begin with.  [that of --tls-cert]")
@click.option("--reflection/--no-reflection", default=None, help="Give gRPC clients the schema.  [only without TLS]")
@click.option("--calls-per-second", metavar="N", help="API calls a second of one principal.  [50000]")
@click.option("--calls-burst", metavar="N", help="API calls of one principal at once after a pause.  [50000]")
@click.option("--calls-at-once", metavar="N", help="API calls of one principal under way at once.  [5000]")
@click.option("--streams-per-connection", metavar="N", help="API calls under way on one connection.  [1000]")
@click.option("--http-connections", metavar="N", help="HTTP connections open at once.  [500]")
@click.option("--api-connections", metavar="N", help="API connections open at once.  [2000]")
@click.option("--agent-connections", metavar="N", help="Connections of agents open at once.  [10000]")
@click.option("--address-share", metavar="SHARE", help="What one address may have of --http and --agents.  [0.25]")
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
    """Run the plane: the log, the folds, the API, relays and provisioners, or the roles asked for.

    Prints one line that begins with `ready` and names its addresses once it serves. SIGTERM ends it cleanly.

    DPUs are served that connect to --agents. With --simulate they are made up, BMCs included, and no hardware is
    written; `dpuplane agent` and `dpuplane simulator` are simulated devices in processes of their own.
    """
    unknown = unknown_variables(os.environ)
    try:
        settings = load_settings(flags, config, os.environ)
    except BadSettings as mistake:
        raise click.UsageError("\n".join([str(mistake), *unknown])) from mistake
    from deploy.logs import configure_logs
    from deploy.process import run_process

    configure_logs(log_level, log_format)
    for sentence in unknown:
        logger.warning("%s", sentence)
    sys.exit(run_process(settings))

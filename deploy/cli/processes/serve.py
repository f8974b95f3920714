"""`dpuplane serve`: a process of the plane, in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from deploy.cli.shared.setting_options import setting_options
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
@setting_options
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

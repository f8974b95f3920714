"""`dpuplane doctor`: checks whether a process can run here with its settings, and what to fix."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from pathlib import Path

import click
import msgspec

from deploy.cli.processes.serve import serve
from deploy.cli.shared import output as out
from deploy.clock import now_ms
from deploy.operations.doctor.host import Finding, check_host
from deploy.operations.doctor.kubernetes import check_sources
from deploy.operations.doctor.log import check_log
from deploy.settings.settings import BadSettings, Settings, load_settings

_OUTPUT = click.Option(
    ["--output", "-o"],
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the result.",
)
_FLAGS = [parameter for parameter in serve.params if parameter.name not in ("log_level", "log_format")]


@click.command(params=[*_FLAGS, _OUTPUT], epilog="Example: dpuplane doctor --data plane")
def doctor(config: Path | None, output: str, **flags: object) -> None:
    """Check the environment of a process: program, folders, ports, certificates, brokers, topics, clocks, replicas,
    source clusters.

    Run it with the flags, environment and file of `dpuplane serve`. It changes nothing. Each line is ok, or names a
    fault and its remedy; exit status 1 if there is a fault.
    """
    try:
        settings = load_settings(flags, config, os.environ)
    except BadSettings as mistake:
        raise click.UsageError(str(mistake)) from mistake
    logging.disable(logging.ERROR)  # a failure is a line of the result
    try:
        findings = asyncio.run(_check(settings))
    finally:
        logging.disable(logging.NOTSET)
    wrong = [finding for finding in findings if not finding.ok]
    if output == "table":
        for finding in findings:
            click.echo(_line(finding))
        click.echo(f"{len(wrong)} of {len(findings)} wrong" if wrong else f"all {len(findings)} ok")
    else:
        out.print_value({"ok": not wrong, "findings": msgspec.to_builtins(findings)}, output)
    sys.exit(1 if wrong else 0)


async def _check(settings: Settings) -> list[Finding]:
    log = await check_log(settings, random.Random())
    return check_host(settings, now_ms()) + log + await check_sources(settings)


def _line(finding: Finding) -> str:
    if finding.ok:
        return f"ok     {finding.check}: {finding.found}"
    return f"WRONG  {finding.check}: {finding.found}\n       -> {finding.advice}"

"""Options for bridges of Open vSwitch, and what an agent makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from deploy.cli.shared.param_types import Folder
from deploy.composition.device_backends import BRIDGED, Bridge
from drivers.openflow import messages as openflow
from drivers.openflow.rule_flows import FlowLayout
from projections.field_checks import quoted

F = TypeVar("F", bound=Callable[..., Any])

RUN_FOLDER = Path("/var/run/openvswitch")
TABLE_MAX = 253
"""Open vSwitch keeps table 254 for itself."""
NORMAL, CHAINS = "normal", "chains"
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,15}")


def _bridges(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> Sequence[str]:
    for name in given:
        if not _NAME.fullmatch(name):
            raise click.BadParameter(f"{quoted(name)} must be the name of a bridge, of up to 15 letters and digits")
    if len(set(given)) < len(given):
        raise click.BadParameter("each bridge is for one DPU")
    return given


class Allowed(click.ParamType[str]):
    """The way of an allowed packet: `normal`, `chains` or `table:N`."""

    name = "action"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = re.fullmatch(r"table:(\d{1,3})", value)
        if value not in (NORMAL, CHAINS) and (found is None or int(found[1]) > TABLE_MAX):
            self.fail(f"{quoted(str(value))} must be normal, chains, or table:N with N up to {TABLE_MAX}", param, ctx)
        return str(value)


def bridge_options(command: F) -> F:
    """The options of agents whose DPUs forward by Open vSwitch."""
    for option in reversed(
        (
            click.option(
                "--bridge",
                "bridges",
                multiple=True,
                callback=_bridges,
                metavar="NAME",
                help="The bridge of the DPU, with --backend openvswitch; one for each --dpu, in the same order.",
            ),
            click.option(
                "--openvswitch-run",
                type=Folder(),
                envvar="OVS_RUNDIR",
                default=RUN_FOLDER,
                show_default=True,
                metavar="DIR",
                help="The folder of the sockets of Open vSwitch.",
            ),
            click.option(
                "--table",
                type=click.IntRange(1, TABLE_MAX),
                default=20,
                show_default=True,
                help="The table of the rules. The agent owns it; no other program may use it.",
            ),
            click.option(
                "--hook-priority",
                type=click.IntRange(2, 65_535),
                default=1_000,
                show_default=True,
                help="Priority of the two flows of table 0 that send IP packets to the table of the rules. Those that"
                " send other packets of chains to the table of chains have the priority below it.",
            ),
            click.option(
                "--chain-table",
                type=click.IntRange(2, TABLE_MAX - 1),
                default=30,
                show_default=True,
                help="The first of two tables of chains, after that of the rules. The agent owns both.",
            ),
            click.option(
                "--allowed",
                type=Allowed(),
                default="normal",
                show_default=True,
                metavar="normal|chains|table:N",
                help="What happens to an allowed packet: it goes through the chain of its port, and if there is none,"
                " it is forwarded as by a learning switch (normal) or dropped (chains); or it goes to a later table.",
            ),
        )
    ):
        command = option(command)
    return command


def flow_layout(*, table: int, hook_priority: int, chain_table: int, allowed: str) -> FlowLayout:
    """The tables of a bridge. Raises click.UsageError."""
    if chain_table <= table:
        raise click.UsageError(f"chain-table: table {chain_table} must come after {table}, the table of the rules")
    next_table = int(allowed.removeprefix("table:")) if allowed not in (NORMAL, CHAINS) else chain_table
    if next_table == table:
        raise click.UsageError(f"allowed: table {table} is the table of the rules")
    unchained = b"" if allowed == CHAINS else openflow.apply_actions(openflow.output(openflow.NORMAL))
    return FlowLayout(table, openflow.goto_table(next_table), hook_priority, chain_table, unchained)


def bridges_of(
    backend: str, dpus: Sequence[str], bridges: Sequence[str], run_folder: Path, layout: FlowLayout
) -> list[Bridge | None]:
    """The bridge of each DPU. Raises click.UsageError."""
    if backend not in BRIDGED:
        if bridges:
            raise click.UsageError(f"bridge: the backend {backend} has no bridges")
        return [None for _ in dpus]
    if len(bridges) != len(dpus):
        given = f"{_counted(len(dpus), 'DPU')} but {_counted(len(bridges), 'bridge')}"
        raise click.UsageError(f"bridge: give one for each --dpu, here {given}")
    return [Bridge(name, run_folder, layout) for name in bridges]


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"

"""The DPUs of a command: by name, or selected by zone, labels of zones, phase, or because they are stuck.

Labels belong to zones (racks), not to DPUs. A selection is listed and must be confirmed before any request is sent.
Each DPU has an outcome of its own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import DPU, ZONE
from deploy.cli.shared.errors import ConfirmationRequired, NotFoundError
from deploy.cli.shared.options import check_zone_of_id, list_all_pages, print_located, selector_option
from deploy.cli.shared.results import finish, finish_items
from projections.zones.dpus.phases import PHASES
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import LIFECYCLE_VERBS

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = 20
"""Maximum number of DPUs that are listed before the confirmation; the others are counted."""


class Selection(NamedTuple):
    """DPUs given by name, or the options that select DPUs."""

    names: tuple[str, ...]
    zone: str
    selector: str
    phase: str | None
    stuck: bool
    whole: bool
    yes: bool

    @property
    def is_selecting(self) -> bool:
        """Whether DPUs are selected by options, not by name."""
        return bool(self.selector or self.phase or self.stuck or self.whole or not self.names)


def selects_dpus(function: F) -> F:
    """Pass DPU names, or options that select DPUs, to a command as `selection`."""

    @functools.wraps(function)
    def run(**given: Any) -> None:
        selection = Selection(*(given.pop(field) for field in Selection._fields))
        function(selection=selection, **given)

    for decorate in (
        click.option("--yes", "-y", is_flag=True, help="Do not ask for a confirmation of the selection."),
        click.option("--all", "whole", is_flag=True, help="Select every DPU of the plane."),
        click.option("--stuck", is_flag=True, help="Select DPUs that failed, are paused, or were replaced."),
        click.option(
            "--phase", type=click.Choice(PHASES, case_sensitive=False), metavar="PHASE", help="Select DPUs in a phase."
        ),
        selector_option("DPUs of zones with these labels"),
        click.option("--zone", default="", type=ZONE, help="Zone of the DPUs. Without names, selects all its DPUs."),
        click.argument("names", type=DPU, nargs=-1, metavar="[DPU]..."),
    ):
        run = decorate(run)
    return run  # type: ignore[return-value]


def request_all(client: Client, output: str, verb: str, selection: Selection, image: str = "") -> None:
    """Send the request for every DPU, print the outcomes and exit."""
    found = _find(client, selection)
    if selection.is_selecting:
        confirm_selection(f"{verb} {_count(found)}", [*map(_line, found)], yes=selection.yes)
    number = LIFECYCLE_VERBS[verb]
    requests = [pb.RequestLifecycleRequest(dpu=d.dpu, zone=d.zone, verb=number, image=image) for d in found]
    if len(requests) == 1:
        finish(client.command("RequestLifecycle", requests[0]), output)
    answers = client.pipelined("RequestLifecycle", requests)
    finish_items([([name_of(dpu)], answer) for dpu, answer in zip(found, answers, strict=True)], output)


def name_of(dpu: pb.Dpu) -> str:
    """The name of a DPU with its zone: two zones may have DPUs of one name."""
    return f"{dpu.zone}/{dpu.dpu}"


def _find(client: Client, selection: Selection) -> Sequence[pb.Dpu]:
    if not selection.is_selecting:
        check_zone_of_id(client, selection.zone)
        return _named(client, list(dict.fromkeys(selection.names)), selection.zone)
    if selection.names:
        raise click.UsageError("give either DPU names, or --selector, --phase, --stuck or --all")
    if not (selection.zone or selection.selector or selection.phase or selection.stuck or selection.whole):
        raise click.UsageError("give DPUs by name, or --zone, --selector, --phase, --stuck or --all")
    if client.command_id:
        raise click.UsageError("--command-id needs DPU names: a selection may differ at the next call")
    wanted = pb.ListDpusRequest(
        zone=selection.zone, phase=selection.phase, stuck=selection.stuck, label_selector=selection.selector
    )
    found = list_all_pages(client, "ListDpus", wanted, pb.ListDpusResponse, "dpus", by=("zone", "ordinal")).dpus
    if not found:
        raise NotFoundError("no DPU matches; nothing was requested")
    return found


def _named(client: Client, names: Sequence[str], zone: str) -> list[pb.Dpu]:
    """The DPUs of these names; the zone of each is looked up if it is not given."""
    if zone:
        return [pb.Dpu(dpu=name, zone=zone) for name in names]
    zones = [client.query("GetDpu", pb.GetDpuRequest(dpu=name)).zone for name in names]
    print_located(zones)
    return [pb.Dpu(dpu=name, zone=found) for name, found in zip(names, zones, strict=True)]


def _count(found: Sequence[pb.Dpu]) -> str:
    return "1 DPU" if len(found) == 1 else f"{len(found)} DPUs"


def _line(dpu: pb.Dpu) -> str:
    return f"{name_of(dpu)} ({dpu.phase}{', paused' if dpu.paused else ''})"


def confirm_selection(request: str, lines: Sequence[str], *, yes: bool) -> None:
    """List what a request selects, and return only after a confirmation. Raises ConfirmationRequired."""
    click.echo(f"{request}:", err=True)
    for line in lines[:_SHOWN]:
        click.echo(f"  {line}", err=True)
    if len(lines) > _SHOWN:
        click.echo(f"  and {len(lines) - _SHOWN} more", err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfirmationRequired("give --yes: there is no terminal for the confirmation, and nothing was requested")
    if not click.confirm("Go on?", err=True):
        raise ConfirmationRequired("nothing was requested")

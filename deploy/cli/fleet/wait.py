"""`dpuplane wait`: waits until a DPU, a zone, a node or a clique has a state, or an object a condition.

It queries when the plane has advanced, and in any case every few seconds. Each response is at least as new as the one
before, so a wait never sees older state. It also waits for a subject that does not exist yet, and for a plane that does
not respond. After the timeout it prints the last state.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import CLIQUE, DOMAIN, DPU, NODE, ZONE
from deploy.cli.shared.errors import NotFoundError, Unreachable
from deploy.cli.shared.options import list_all_pages, selector_option, wait_options
from deploy.cli.shared.param_types import INT64
from deploy.cli.shared.progress import ProgressLine
from deploy.cli.shared.watch import Advances
from projections.rules.rule import Rule
from projections.rules.traffic import TrafficClasses, allowed_classes
from projections.zones.dpus.phases import PHASES, READY
from schemas.api import dpuplane_pb2 as pb

EVERY_S = 5.0


class WaitState(NamedTuple):
    """The present state: whether the wait is over, the state in a few words, and a command that shows more."""

    enough: bool
    said: str
    try_next: str = ""


class WaitGroup(click.Group):
    """The subcommands of `wait`. Any other first word belongs to `wait object`, in the grammar of kubectl."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = (*self.list_commands(ctx), *ctx.help_option_names)
        is_object = bool(args) and args[0] not in known and not ctx.resilient_parsing
        return super().parse_args(ctx, ["object", *args] if is_object else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "object"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "object" or "/" in cmd_name:
            from deploy.cli.fleet.wait_objects import wait_object

            return wait_object
        return super().get_command(ctx, cmd_name)


@click.group(cls=WaitGroup)
def wait() -> None:
    """Wait until a node, DPU, zone or clique has a state, or an object has a condition or is gone; exit status 3 after
    the timeout.

    Objects are named as for kubectl: `dpuplane wait KIND/NAME --for=condition=Ready`.

    Example: dpuplane wait zone rack7 --for applied
    """


@wait.command()
@click.argument("names", metavar="[DPU]...", type=DPU, nargs=-1)
@click.option(
    "--for",
    "wanted",
    type=click.Choice(PHASES, case_sensitive=False),
    metavar="PHASE",
    default=READY,
    show_default=True,
    help="The phase; case does not matter.",
)
@click.option("--zone", default="", type=ZONE, help="Zone of the DPUs; looked up for each DPU if not given.")
@selector_option("DPUs of zones with these labels, instead of names")
@wait_options
def dpu(
    *, client: Client, output: str, timeout: float, names: tuple[str, ...], wanted: str, zone: str, selector: str
) -> None:
    """Wait until DPUs are in a phase: those named, or all of a zone or of a selection.

    Example: dpuplane wait dpu rack7-dpu-0000 --for ready --timeout 1800
    """
    if bool(names) == bool(selector) and (names or not zone):
        raise click.UsageError("give DPUs by name, or --selector or --zone")

    def look(name: str) -> WaitState:
        found: pb.Dpu = client.query("GetDpu", pb.GetDpuRequest(dpu=name, zone=zone))
        said = f"{found.phase}{' (paused)' if found.paused else ''}, attempts {found.phase_attempts}"
        return WaitState(
            found.phase == wanted,
            f"{said}: {found.message}" if found.message else said,
            f"dpuplane history {name}{f' --zone {zone}' if zone else ''}",
        )

    def look_at_list() -> WaitState:
        request = pb.ListDpusRequest(zone=zone, label_selector=selector)
        found = list_all_pages(client, "ListDpus", request, pb.ListDpusResponse, "dpus", by=("zone", "ordinal")).dpus
        missing = [each for each in found if each.phase != wanted]
        said = f"{len(found) - len(missing)} of {len(found)} DPUs"
        if missing:
            said += f"; {missing[0].zone}/{missing[0].dpu} is in {missing[0].phase}"
        return WaitState(bool(found) and not missing, said, "dpuplane dpus list")

    looks = all_of(names, look) if names else look_at_list
    what = " ".join(filter(None, ("dpu", ", ".join(names) or f"{selector} {zone}".strip())))
    wait_until(client, looks, what=what, wanted=wanted, timeout=timeout, output=output)


@wait.command()
@click.argument("names", metavar="[ZONE]...", type=ZONE, nargs=-1)
@click.option(
    "--for",
    "wanted",
    type=click.Choice(["received", "applied", "in-hardware"]),
    default="applied",
    show_default=True,
    help="The level that every DPU of the zone must have reached with its table.",
)
@click.option(
    "--version", type=INT64, help="This version of the table or a later one.  [the newest when the wait begins]"
)
@selector_option("zones with these labels, instead of names")
@wait_options
def zone(
    *,
    client: Client,
    output: str,
    timeout: float,
    names: tuple[str, ...],
    wanted: str,
    version: int | None,
    selector: str,
) -> None:
    """Wait until every DPU of the zones has the newest rule table of its zone, or that of --version.

    Example: dpuplane wait zone rack7 --for applied
    """
    if bool(names) == bool(selector):
        raise click.UsageError("give zones by name, or --selector" + (", and not both" if names else ""))
    if selector:
        request = pb.ListZonesRequest(label_selector=selector)
        listed = list_all_pages(client, "ListZones", request, pb.ListZonesResponse, "zones", by=("zone",)).zones
        if not listed:
            raise NotFoundError("no zone matches")
        names = tuple(each.zone for each in listed)
    least: dict[str, int] = {} if version is None else dict.fromkeys(names, version)

    def look(name: str) -> WaitState:
        found: pb.Zone = client.query("GetZone", pb.GetZoneRequest(zone=name))
        return _zone_state(found, wanted.replace("-", "_"), least.setdefault(name, found.version))

    wait_until(
        client, all_of(names, look), what=f"zone {', '.join(names)}", wanted=wanted, timeout=timeout, output=output
    )


def all_of(names: Sequence[str], look: Callable[[str], WaitState]) -> Callable[[], WaitState]:
    """A function that queries several subjects for their state. A subject is not queried again once it has reached the
    wanted state."""
    pending = list(dict.fromkeys(names))
    count = len(pending)

    def look_at_pending() -> WaitState:
        while (seen := look(pending[0])).enough and len(pending) > 1:
            del pending[0]
        if count == 1:
            return seen
        reached = count - (0 if seen.enough else len(pending))
        return seen._replace(said=f"{reached} of {count}; {pending[0]}: {seen.said}")

    return look_at_pending


def _zone_state(found: pb.Zone, level: str, least: int) -> WaitState:
    if not found.dpus and found.version >= least:
        return WaitState(enough=True, said=f"version {found.version}, no DPUs")
    new_enough = [install for install in found.installs if install.version >= least]
    if not new_enough:
        said = f"version {found.version}, and no DPU has reported version {least} or later"
    else:
        most = max(new_enough, key=lambda install: int(getattr(install, level)))
        said = f"version {most.version}, {getattr(most, level)} of {most.dpus} DPUs {level.replace('_', ' ')}"
    if found.frozen:
        said += ", frozen"
    enough = any(getattr(install, level) >= install.dpus for install in new_enough)
    return WaitState(enough, said, f"dpuplane zones show {found.zone}")


@wait.command()
@click.argument("name", metavar="NODE", type=NODE)
@click.option("--for", "wanted", type=click.Choice(["covered"]), default="covered", show_default=True)
@click.option("--zone", default="", type=ZONE, help="Zone whose table is used.  [its own]")
@wait_options
def node(*, client: Client, output: str, timeout: float, name: str, wanted: str, zone: str) -> None:
    """Wait until a zone's rule table allows every address of a node. (For its DPUs: `wait zone`.)

    Example: dpuplane wait node rack7-n3 --for covered
    """

    def look() -> WaitState:
        found: pb.Node = client.query("GetNode", pb.GetNodeRequest(name=name))
        client.advance_min_position()
        pages: list[pb.Rules] = client.query("GetRules", pb.GetRulesRequest(zone=zone or found.zone))
        left = set(found.addresses) - _let_through(found, pages)
        where = f"version {pages[0].version} of zone {pages[0].zone}"
        if not found.addresses:
            return WaitState(enough=False, said="it has no address", try_next=f"dpuplane nodes show {name}")
        said = f"{where} lacks {', '.join(sorted(left))}" if left else f"{where} has {', '.join(found.addresses)}"
        return WaitState(not left, said, "dpuplane policies list")

    wait_until(client, look, what=f"node {name}", wanted=wanted, timeout=timeout, output=output)


def _let_through(found: pb.Node, pages: list[pb.Rules]) -> set[str]:
    """The node's addresses for which the rules allow some traffic. `pages` has the rules in the order in which they
    apply."""
    rules = [(ipaddress.ip_network(rule.prefix), _rule(rule)) for page in pages for rule in page.rules]
    masks = TrafficClasses(rule for _, rule in rules).masks

    def may(text: str) -> int:
        address = ipaddress.ip_address(text)
        return allowed_classes((rule.action == "allow", masks[rule]) for network, rule in rules if address in network)

    return {text for text in found.addresses if may(text)}


def _rule(said: pb.Rule) -> Rule:
    ports = tuple(port for ports in said.ports for port in (ports.first, ports.last))
    return Rule(said.priority, said.action, said.protocol, ports)


@wait.command()
@click.argument("domain", type=DOMAIN)
@click.argument("name", metavar="CLIQUE", type=CLIQUE)
@click.option(
    "--for",
    "wanted",
    type=click.Choice(["full", "ready"]),
    default="full",
    show_default=True,
    help="full: every index is taken; ready: every daemon is ready too.",
)
@wait_options
def clique(*, client: Client, output: str, timeout: float, domain: str, name: str, wanted: str) -> None:
    """Wait until every index of a clique is taken.

    Example: dpuplane wait clique domain-1 clique-a --for full
    """

    def look() -> WaitState:
        found: pb.Clique = client.query("GetClique", pb.GetCliqueRequest(domain=domain, clique=name))
        ready = sum(member.ready for member in found.members)
        said = f"{len(found.members)} of {found.capacity} indices taken, {ready} ready"
        enough = (ready if wanted == "ready" else len(found.members)) >= found.capacity
        return WaitState(enough, said, f"dpuplane cliques show {domain} {name}")

    wait_until(client, look, what=f"clique {domain}/{name}", wanted=wanted, timeout=timeout, output=output)


def wait_until(
    client: Client, look: Callable[[], WaitState], *, what: str, wanted: str, timeout: float, output: str
) -> None:
    """Query until the subject has the wanted state, and print the state. Raises Unreachable after the timeout."""
    until_s = time.monotonic() + timeout
    advances = Advances(client)
    with ProgressLine(what) as progress:
        advances.begin()
        while not (seen := _look(look)).enough:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                again = f"; see `{seen.try_next}`" if seen.try_next else ""
                raise Unreachable(f"{what}: not {wanted} within {timeout:g} s; last seen: {seen.said}{again}")
            progress.show(seen.said, 1 - left_s / timeout)
            client.advance_min_position()
            advances.wait(time.sleep, min(EVERY_S, left_s))
            advances.begin()
    if output == "table":
        click.echo(f"{what}: {wanted}: {seen.said}")
    else:
        out.print_value({"subject": what, "for": wanted, "seen": seen.said}, output)


def _look(look: Callable[[], WaitState]) -> WaitState:
    try:
        return look()
    except (NotFoundError, Unreachable) as error:
        return WaitState(enough=False, said=error.message)

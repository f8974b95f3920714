"""`dpuplane zones`: zones (racks), their labels and limits."""

from __future__ import annotations

import click

from deploy.cli.fleet.zone_check import is_known, known_zone
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import ZONE
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.options import command_options, list_all_pages, list_options, selector_option, show_options
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.param_types import INT32
from deploy.cli.shared.results import exit_status, finish
from projections.attempt_limits import FAILURE_KINDS
from projections.field_checks import quoted
from projections.installs.exceptions import exception_text
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_ms

_TABLE = Table(
    lambda zone: zone.zone,
    (
        Column("zone", lambda zone: zone.zone),
        Column("nodes", lambda zone: zone.nodes),
        Column("dpus", lambda zone: zone.dpus),
        Column("rules", lambda zone: zone.rules),
        Column("version", lambda zone: zone.version),
        Column("digest", lambda zone: zone.digest, wide=True),
        Column("parallel installs", lambda zone: zone.parallel_installs, wide=True),
        Column("unavailable nodes", lambda zone: zone.unavailable_nodes, wide=True),
        Column("frozen", lambda zone: "frozen" if zone.frozen else ""),
        Column("labels", lambda zone: out.labels_text(zone.labels)),
    ),
)


@click.group()
def zones() -> None:
    """List, show, label, limit and delete zones. A zone (rack) has nodes, DPUs and one rule table; it exists from its
    first node or DPU on.

    Example: dpuplane zones show rack7
    """


@zones.command("list")
@selector_option("zones with these labels")
@list_options
def list_zones(*, client: Client, output: Output, limit: int | None, selector: str) -> None:
    """List zones.

    Example: dpuplane zones list -l 'row in (7,8)' -o wide
    """
    wanted = pb.ListZonesRequest(label_selector=selector)
    found = list_all_pages(client, "ListZones", wanted, pb.ListZonesResponse, "zones", by=("zone",), limit=limit)
    output.print_list(found, found.zones, _TABLE)


@zones.command()
@click.argument("zone", type=ZONE)
@show_options
def show(*, client: Client, output: Output, zone: str) -> None:
    """Show one zone: counts, limits, and the progress of its latest rule tables.

    Example: dpuplane zones show rack7 --output yaml
    """
    found: pb.Zone = client.query("GetZone", pb.GetZoneRequest(zone=zone))
    output.print_one(found, found.zone, lambda: out.print_fields(fields_of(found)))


def fields_of(found: pb.Zone) -> list[tuple[str, object]]:
    """The fields of one zone, one per line; a DPU that refused a table or returned to an older one has a line of its
    own."""
    return [
        ("zone", found.zone),
        ("labels", out.labels_text(found.labels)),
        ("nodes", found.nodes),
        ("dpus", found.dpus),
        ("rules", f"{found.rules} (version {found.version}, digest {found.digest})"),
        ("limits", f"{found.parallel_installs} parallel installs, {found.unavailable_nodes} unavailable nodes"),
        ("attempts at a step", ", ".join(f"{getattr(found, f'{kind}_attempts')} ({kind})" for kind in FAILURE_KINDS)),
        ("agents may state", _agents(found)),
        ("frozen", _frozen(found)),
        *((f"version {i.version}", _progress(i)) for i in found.installs),
        ("lagging", ", ".join(found.lagging) or "none"),
        *((f"exception {e.dpu}", _exception(e)) for e in found.exceptions),
    ]


def _agents(found: pb.Zone) -> str:
    """The labels and addresses that node agents may set in a zone."""
    networks, keys = ", ".join(found.agent_networks), ", ".join(found.agent_label_keys)
    return f"addresses in {networks or 'no network'}; labels {keys or 'none'}"


def _frozen(found: pb.Zone) -> str:
    """The principal and time of a freeze, and the changes that wait for the thaw."""
    if not found.frozen:
        return "no"
    since = f"since {out.time_text(found.freeze_time)} by {found.frozen_by}"
    if not found.waiting_dpus and not found.waiting_steps:
        return f"{since}; nothing waits"
    changes = (
        f" (changes since {out.time_text(found.waiting_start_time)})" if found.HasField("waiting_start_time") else ""
    )
    return (
        f"{since}; {found.waiting_dpus} of {found.dpus} DPUs wait for table version {found.version}{changes},"
        f" {found.waiting_steps} for their next step"
    )


def _progress(install: pb.Install) -> str:
    """The progress of one table version. Each level has the number of DPUs that reached it, and the times after which
    given percentages had reached it: `received by 990 of 1000 DPUs (50, 99 % after 20, 35 ms)`."""
    levels = {"received": "received by", "applied": "applied by", "in_hardware": "in hardware on"}
    return "; ".join(
        f"{said} {getattr(install, level)} of {install.dpus} DPUs{_latencies(install, level)}"
        for level, said in levels.items()
    )


def _exception(found: pb.DpuException) -> str:
    """The last exception of a DPU and its time; the DPU may have recovered since."""
    what, colon, reason = exception_text(found.version, found.reason).partition(": ")
    return f"{what} at {out.time_text(found.report_time)}{colon}{reason}"


def _latencies(install: pb.Install, level: str) -> str:
    found = [milestone for milestone in install.milestones if milestone.level == level]
    if not found:
        return ""
    shares = ", ".join(f"{milestone.permille / 10:g}" for milestone in found)
    times = ", ".join(str(to_ms(each.latency)) if each.HasField("latency") else "?" for each in found)
    return f" ({shares} % after {times} ms)"


@zones.command()
@click.argument("zone", type=ZONE)
@click.argument("labels", nargs=-1, required=True, metavar="K=V|K-...")
@click.option("--replace", is_flag=True, help="Remove every label that is not given.")
@command_options
def label(*, client: Client, output: str, zone: str, labels: tuple[str, ...], replace: bool) -> None:
    """Set labels of a zone with K=V and remove labels with K-. Other labels stay, unless --replace is given.

    Example: dpuplane zones label rack7 tier=gpu old-tier-
    """
    wanted = {} if replace else dict(known_zone(client, zone).labels)
    for text in labels:
        key, equals, value = text.partition("=")
        if equals and key:
            wanted[key] = value
        elif not equals and text.endswith("-") and len(text) > 1:
            wanted.pop(text[:-1], None)
        else:
            raise click.BadParameter(f"{quoted(text)} must be KEY=VALUE, or KEY- to remove it", param_hint="K=V|K-")
    request = pb.UpdateZoneRequest(zone=zone, set_labels=True, labels=wanted)
    finish(client.command("UpdateZone", request), output)


@zones.command()
@click.argument("zone", type=ZONE)
@click.option("--parallel-installs", type=INT32, help="Maximum of concurrent installs; 0 for the default.")
@click.option("--unavailable-nodes", type=INT32, help="Maximum of unavailable nodes at one time; 0 for the default.")
@click.option(
    "--agent-network",
    "networks",
    multiple=True,
    metavar="CIDR",
    help="A network from which node agents may set addresses; repeatable, replaces those that were set;"
    " 'none' for no network.",
)
@click.option(
    "--agent-label-key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="A label key that node agents own; repeatable, replaces those that were set; 'none' for no key.",
)
@click.option("--transient-attempts", type=INT32, help="Attempts at a step while the device is silent; 0: the default.")
@click.option("--device-attempts", type=INT32, help="Attempts at a step that fails on the device; 0: the default.")
@click.option("--operator-attempts", type=INT32, help="Attempts at a step that needs a person; 0: the default.")
@click.option("--create", is_flag=True, help="Create the zone if it is unknown.")
@command_options
def limit(
    *,
    client: Client,
    output: str,
    zone: str,
    parallel_installs: int | None,
    unavailable_nodes: int | None,
    networks: tuple[str, ...],
    keys: tuple[str, ...],
    create: bool,
    **attempts: int | None,
) -> None:
    """Set limits of a zone: concurrent installs, attempts at a step of a DPU, and the labels and addresses of node
    agents.

    \b
    Examples:
      dpuplane zones limit rack7 --parallel-installs 4
      dpuplane zones limit rack7 --transient-attempts 20 --device-attempts 5
      dpuplane zones limit rack7 --agent-network 10.7.0.0/16 --agent-label-key role
    """
    if {parallel_installs, unavailable_nodes, *attempts.values()} == {None} and not networks and not keys:
        options = "--parallel-installs, --unavailable-nodes, --agent-network, --agent-label-key"
        raise click.UsageError(f"give {options}, --transient-attempts, --device-attempts or --operator-attempts")
    if not create:
        known_zone(client, zone, otherwise="--create creates it with these limits")
    request = pb.UpdateZoneRequest(
        zone=zone,
        parallel_installs=parallel_installs,
        unavailable_nodes=unavailable_nodes,
        transient_attempts=attempts["transient_attempts"],
        device_attempts=attempts["device_attempts"],
        operator_attempts=attempts["operator_attempts"],
        set_agent_networks=bool(networks),
        agent_networks=_unless_none("--agent-network", networks),
        set_agent_label_keys=bool(keys),
        agent_label_keys=_unless_none("--agent-label-key", keys),
    )
    finish(client.command("UpdateZone", request), output)


@zones.command()
@click.argument("zone", type=ZONE)
@command_options
def delete(*, client: Client, output: str, zone: str) -> None:
    """Delete a zone that has no node and no DPU, with its labels and limits.

    A frozen zone is refused. Labels and limits are removed by a second command, which may be held like any edit of
    labels. With --command-id, the second command is not sent, and the labels and limits stay.

    Example: dpuplane zones delete rack7
    """
    if known_zone(client, zone).frozen:
        raise Refused(f"zone: {quoted(zone)} is frozen; thaw it first")
    answer: pb.CommandResult = client.command("DeleteZone", pb.DeleteZoneRequest(zone=zone))
    if exit_status(answer) == 0 and not client.command_id and is_known(client, zone):
        nothing = pb.UpdateZoneRequest(
            zone=zone,
            set_labels=True,
            parallel_installs=0,
            unavailable_nodes=0,
            set_agent_networks=True,
            set_agent_label_keys=True,
            transient_attempts=0,
            device_attempts=0,
            operator_attempts=0,
        )
        answer = client.command("UpdateZone", nothing)
    finish(answer, output)


def _unless_none(option: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """The values of an option; `none` alone means the empty list."""
    if "none" not in values:
        return values
    if len(values) > 1:
        raise click.BadParameter("'none' must be the only value", param_hint=option)
    return ()

"""`dpuplane dpus`: DPUs and their lifecycle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from deploy.cli.fleet.dpu_selection import Selection, request_all, selects_dpus
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.completed_names import DPU, NODE, ZONE
from deploy.cli.shared.options import command_options, list_all_pages, list_options, selector_option, show_options
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.results import finish
from deploy.serialization import message_to_dict
from projections.zones.dpus.install_interfaces import address_forms
from projections.zones.dpus.phases import PHASES
from schemas.api import dpuplane_pb2 as pb

_VERBS = {
    "pause": "Stop DPUs after their running step.",
    "resume": "Resume paused DPUs.",
    "retry": "Retry the failed step of DPUs.",
    "skip": "Mark the step of DPUs as done.",
    "abort": "End the provisioning of DPUs before it is complete.",
    "delete": "Delete DPUs from the plane; `skip` deletes a DPU whose BMC is gone.",
}


_NOT_SHOWN = ("position", "attempt")
_TIMES = {"phase_start_time": "since", "attempt_deadline_time": "deadline"}
_TABLE = Table(
    lambda dpu: dpu.dpu,
    (
        Column("dpu", lambda dpu: dpu.dpu),
        Column("zone", lambda dpu: dpu.zone),
        Column("node", lambda dpu: dpu.node),
        Column("phase", lambda dpu: f"{dpu.phase} (paused)" if dpu.paused else dpu.phase),
        Column("attempts", lambda dpu: dpu.phase_attempts),
        Column("image", lambda dpu: dpu.image),
        Column("step", lambda dpu: dpu.step_state, wide=True),
        Column("percent", lambda dpu: dpu.percent, wide=True),
        Column("provisioner", lambda dpu: dpu.provisioner, wide=True),
        Column("since", lambda dpu: out.time_text(dpu.phase_start_time), wide=True),
        Column("serial", lambda dpu: dpu.serial, wide=True),
        Column("bmc address", lambda dpu: dpu.bmc_address, wide=True),
        Column("message", lambda dpu: dpu.message),
    ),
)


@click.group()
def dpus() -> None:
    """Register DPUs; provision, pause, resume, retry, skip, abort or delete them.

    Example: dpuplane dpus provision rack7-dpu-0000 --image bf-bundle-2.10
    """


@dpus.command("list")
@click.option("--zone", default="", type=ZONE, help="Only DPUs of this zone.")
@click.option(
    "--phase",
    type=click.Choice(PHASES, case_sensitive=False),
    metavar="PHASE",
    help="Only DPUs in this phase.",
)
@click.option("--stuck", is_flag=True, help="Only DPUs that failed, are paused, or were replaced by another card.")
@selector_option("DPUs of zones with these labels")
@list_options
def list_dpus(
    *, client: Client, output: Output, limit: int | None, zone: str, phase: str | None, stuck: bool, selector: str
) -> None:
    """List DPUs.

    Example: dpuplane dpus list --zone rack7 --phase Ready
    """
    wanted = pb.ListDpusRequest(zone=zone, phase=phase, stuck=stuck, label_selector=selector)
    by = ("zone", "ordinal")
    found = list_all_pages(client, "ListDpus", wanted, pb.ListDpusResponse, "dpus", by=by, limit=limit)
    output.print_list(found, found.dpus, _TABLE)


@dpus.command()
@click.argument("dpu", type=DPU)
@click.option("--zone", default="", type=ZONE, help="Zone of the DPU; looked up if not given.")
@show_options
def show(*, client: Client, output: Output, dpu: str, zone: str) -> None:
    """Show one DPU.

    Example: dpuplane dpus show rack7-dpu-0000
    """
    found: pb.Dpu = client.query("GetDpu", pb.GetDpuRequest(dpu=dpu, zone=zone))
    fields = [_field(name, value) for name, value in message_to_dict(found).items() if name not in _NOT_SHOWN]
    output.print_one(found, found.dpu, lambda: out.print_fields(fields))


@dpus.command()
@click.argument("dpu", type=DPU)
@click.option("-n", "--namespace", default="", help="Namespace of the DPU's object; needed only if several have it.")
@click.option("--user-data", is_flag=True, help="Only the cloud-init user-data.")
@show_options
def config(*, client: Client, output: Output, dpu: str, namespace: str, user_data: bool) -> None:
    """Show the configuration that a DPU is installed with. Secrets are masked.

    Example: dpuplane dpus config worker-1-mt25066004be
    """
    request = pb.GetDpuConfigurationRequest(dpu=dpu, namespace=namespace)
    found: pb.DpuConfiguration = client.query("GetDpuConfiguration", request)
    text = found.user_data if user_data else found.bf_cfg
    output.print_one(found, found.dpu, lambda: click.echo(text, nl=False))


@dpus.command()
@click.argument("dpu", type=DPU)
@click.option("--zone", default="", type=ZONE, help="Zone of the DPU; looked up if not given.")
@show_options
def network(*, client: Client, output: Output, dpu: str, zone: str) -> None:
    """Show the network document of a DPU, and what its agent has applied of it.

    Example: dpuplane dpus network worker-1-mt25066004be
    """
    found: pb.DpuNetwork = client.query("GetDpuNetwork", pb.GetDpuNetworkRequest(dpu=dpu, zone=zone))
    output.print_one(found, found.dpu, lambda: _print_network(found))


def _print_network(found: pb.DpuNetwork) -> None:
    """The interfaces and switches of a document, each interface with what its port waits for."""
    import msgspec

    from projections.resources.network_documents.document import Document, awaited

    is_applied = found.applied_version == found.wanted_version
    waiting, document = frozenset(found.unresolved), msgspec.json.decode(found.document, type=Document)
    applied = str(found.applied_version) if found.applied_version else "none"
    fields: list[tuple[str, object]] = [
        ("dpu", found.dpu),
        ("zone", found.zone),
        ("wanted version", found.wanted_version),
        ("applied version", applied if is_applied else f"{applied}, the agent has not applied the wanted one yet"),
        *([("refused", found.refusal)] if found.refusal else []),
        ("digest", found.digest),
        ("bridge", document.bridge),
    ]
    for each in document.interfaces:
        port = each.port or json.dumps(each.settings, sort_keys=True)
        waits = f"; has no port yet, waits for {awaited(each)}" if each.name in waiting else ""
        fields.append((f"interface {each.name}", f"{each.type} {port}, MTU {each.mtu}{waits}"))
    for switch in document.switches:
        ports = ", ".join(port.interface for port in switch.ports) or "no port"
        fields.append((f"switch {switch.number} of {switch.chain}", f"{ports}, MTU {switch.mtu}"))
    out.print_fields(fields)


def _field(name: str, value: Any) -> tuple[str, object]:
    if name in ("phase_attempts", "failures"):
        return f"{name.removeprefix('phase_')} of this step", value
    if name in _TIMES:
        return _TIMES[name], value
    if isinstance(value, bool):
        return name, "yes" if value else "no"
    return name, out.labels_text(value) if isinstance(value, dict) else value


@dpus.command()
@click.argument("dpu", type=DPU)
@click.option("--zone", required=True, type=ZONE, help="Zone (rack) of the DPU.")
@click.option("--node", default="", type=NODE, help="Node (host) of the DPU.")
@click.option("--serial", default="", help="Serial number of the DPU, which identifies the card.")
@click.option("--bmc-address", default="", help=f"Address of the BMC: {address_forms()}.")
@command_options
def register(*, client: Client, output: str, dpu: str, zone: str, node: str, serial: str, bmc_address: str) -> None:
    """Register a DPU.

    \b
    Example: dpuplane dpus register rack7-d3 --zone rack7 --node rack7-n3 --serial MT2233X0 --bmc-address redfish://10.9.0.3:443
    """
    request = pb.RegisterDpuRequest(zone=zone, dpu=dpu, node=node, serial=serial, bmc_address=bmc_address)
    finish(client.command("RegisterDpu", request), output)


@dpus.command()
@selects_dpus
@click.option("--image", default="", help="The image to install.")
@command_options
def provision(*, client: Client, output: str, selection: Selection, image: str) -> None:
    """Take DPUs through their phases until they are ready.

    \b
    Examples:
      dpuplane dpus provision rack7-dpu-0000 --image bf-bundle-2.10
      dpuplane dpus provision --selector rack=7 --phase Ready --image bf-bundle-2.10 --yes
    """
    request_all(client, output, "provision", selection, image)


def _verb_command(verb: str, summary: str) -> Callable[..., Any]:
    @dpus.command(verb, help=f"{summary}\n\nExample: dpuplane dpus {verb} rack7-dpu-0000")
    @selects_dpus
    @command_options
    def run(*, client: Client, output: str, selection: Selection) -> None:
        request_all(client, output, verb, selection)

    return run


for _verb, _summary in _VERBS.items():
    _verb_command(_verb, _summary)

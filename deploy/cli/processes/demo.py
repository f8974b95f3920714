"""`dpuplane demo`: runs the whole plane in one process, and joins a fleet to it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from commands.inventory.plan import ImportOptions
from deploy.cli.fleet.inventory_options import inventory_options, read_inventory
from deploy.cli.shared.errors import Refused, Unreachable
from deploy.cli.shared.param_types import Folder, addresses_if_given
from drivers.simulators.bmc_network import SIZES_FORM, NetworkSizes, parse_sizes
from eventstore.errors import PermanentError, PlaneError
from projections.field_checks import PATH_QUOTED, quoted

if TYPE_CHECKING:
    from deploy.demo.devices.summary import DeviceSummary
    from deploy.demo.platform.summary import PlatformSummary


def _platform_sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> NetworkSizes | None:
    if value is None:
        return None
    try:
        return parse_sizes("--platform", value)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.command(epilog="Example: dpuplane demo --nodes 1000 --zones 10 --dpus-per-zone 20")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), default=2_000, show_default=True, help="Number of nodes.")
@click.option("--zones", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Number of zones.")
@click.option("--dpus-per-zone", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Simulated DPUs.")
@click.option("--provision", type=click.IntRange(0), default=10, show_default=True, help="Provisioned DPUs per zone.")
@click.option("--cliques", type=click.IntRange(0), help="Number of cliques.  [as many as the nodes fill]")
@click.option("--clique-size", type=click.IntRange(1, 4_096), default=18, show_default=True, help="Nodes per clique.")
@click.option(
    "--inventory",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Join the nodes of this file, instead of --nodes in --zones.",
)
@inventory_options
@click.option(
    "--kafka",
    callback=addresses_if_given,
    metavar="HOST:PORT,...",
    default="",
    help="Keep the log in this Kafka cluster.",
)
@click.option(
    "--data",
    metavar="DIR",
    type=Folder(),
    help="Keep the log in this folder, also after the end.",
)
@click.option(
    "--platform",
    callback=_platform_sizes,
    metavar=SIZES_FORM,
    is_flag=False,
    flag_value="4x25",
    help="Instead: DPF's manifests from discovery to Ready, an update in waves, roll back, deletion.  [4x25]",
)
@click.option(
    "--devices",
    type=click.IntRange(2, 100),
    metavar="DPUS",
    is_flag=False,
    flag_value=50,
    help="Instead: DPUs whose rules are in a real Open vSwitch, installed through BMCs with Redfish.  [50]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def demo(
    *,
    nodes: int,
    zones: int,
    dpus_per_zone: int,
    provision: int,
    cliques: int | None,
    clique_size: int,
    inventory: Path | None,
    reading: Callable[..., ImportOptions],
    kafka: str,
    data: Path | None,
    platform: NetworkSizes | None,
    devices: int | None,
    as_json: bool,
) -> None:
    """Run the whole plane in one process, and let a fleet join it.

    The nodes join in one burst and claim every clique; DPUs are provisioned phase by phase; some nodes and indices
    leave and return. Then the log is folded again, and its rule tables are compared with those of every simulated DPU.
    Exit status 1 if they differ.

    With --platform the demo applies DPF's manifests instead: DPUs are found and installed, an update in waves is held
    because one DPU fails, it is rolled back, and everything is deleted.

    With --devices each DPU has a bridge of a real Open vSwitch, which is started for the demo, and a BMC that speaks
    Redfish over HTTPS. DPUs are installed, a chain of services is built, and the switch says what it does with packets;
    root also sends some.
    """
    from deploy.demo.fleet import generate_fleet
    from deploy.demo.run import run_demo
    from deploy.demo.scenario import DemoSizes

    if kafka and data:
        raise click.UsageError("give --kafka or --data, not both")
    if data is not None and data.exists() and any(data.iterdir()):
        raise click.UsageError(f"data {quoted(str(data), PATH_QUOTED)} must be empty: the demo creates its own log")
    if platform is not None or devices is not None:
        _run_other(platform, devices, data, as_json=as_json)
    if inventory is not None:
        _check_not_given("nodes", "zones", "cliques")
        fleet = read_inventory(inventory, reading(clique_size=clique_size if reading().clique_when else 0))
    elif reading() != ImportOptions():
        raise click.UsageError("--inventory is required by the options that describe its columns and rows")
    elif zones > nodes:
        raise click.UsageError(
            f"zones {zones} must be at most the number of nodes, {nodes}: a zone exists from its first node on"
        )
    elif cliques is not None and cliques * clique_size > nodes:
        raise click.UsageError(
            f"cliques {cliques} times clique size {clique_size} must be at most the number of nodes, {nodes}"
        )
    else:
        fleet = generate_fleet(nodes=nodes, zones=zones, clique_size=clique_size, cliques=cliques)
    sizes = DemoSizes(dpus_per_zone, min(provision, dpus_per_zone))
    with ExitStack() as stack:
        folder = data or (None if kafka else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dpuplane-"))))
        try:
            summary = run_demo(fleet, sizes, data=folder, kafka=kafka)
        except PermanentError as error:
            raise Refused(str(error)) from error
        except PlaneError as error:
            raise Unreachable(str(error)) from error
    if as_json:
        click.echo(json.dumps(summary.as_json()))
    else:
        click.echo(summary.as_text())
    sys.exit(0 if summary.is_good else 1)


def _run_other(platform: NetworkSizes | None, devices: int | None, data: Path | None, *, as_json: bool) -> NoReturn:
    """Run the demo of the platform or that of devices, print its summary, and exit."""
    given = ("nodes", "zones", "cliques", "dpus_per_zone", "provision", "inventory", "kafka")
    _check_not_given(*given, other="--platform" if devices is None else "--devices")
    if platform is not None and devices is not None:
        raise click.UsageError("give --platform or --devices, not both")
    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dpuplane-")))
        try:
            summary = _run_devices(devices, folder) if devices is not None else _run_platform(platform, folder, data)
        except PermanentError as error:
            raise Refused(str(error)) from error
        except PlaneError as error:
            raise Unreachable(str(error)) from error
    click.echo(json.dumps(summary.as_json()) if as_json else summary.as_text())
    sys.exit(0 if summary.is_good else 1)


def _run_platform(sizes: NetworkSizes | None, folder: Path, kept: Path | None) -> PlatformSummary:
    from deploy.demo.platform.run import run_platform_demo, write_manifests

    assert sizes is not None, "this demo was asked for"
    summary = run_platform_demo(sizes, data=folder)
    if kept is not None:
        write_manifests(kept / "manifests", sizes)
    return summary


def _run_devices(count: int, folder: Path) -> DeviceSummary:
    from deploy.demo.devices.run import run_device_demo
    from deploy.host.openvswitch import missing_program

    if missing := missing_program():
        raise Unreachable(f"the demo of devices needs Open vSwitch: {missing}")
    return run_device_demo(count, data=folder)


def _check_not_given(*names: str, other: str = "--inventory") -> None:
    for name in names:
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} must not be given with {other}, which determines it")

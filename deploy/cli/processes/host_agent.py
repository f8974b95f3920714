"""`dpuplane host-agent`: the agent of a host that is trusted. It finds the host's DPUs and does their tasks."""

from __future__ import annotations

import random
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_interface
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from deploy.cli.shared.param_types import Seconds, addresses
from deploy.cli.shared.tls import certificates_of, tls_options
from deploy.host_agent.devices import DEVICE_IDS, find_devices
from deploy.host_agent.host_network import BRIDGE, VFS, HostNetwork
from projections.field_checks import quoted
from projections.resources.host_tasks import INSTALL, NETWORK, REBOOT, RESTART, FoundDevice
from projections.resources.items import check_object_name
from schemas.resources.dpf.node import REBOOT_ORDER

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates

SERVER_DEFAULT = "127.0.0.1:7080"
PRINCIPAL = "host-agent"
"""The unverified name of an agent without a certificate."""
REBOOT_METHODS = REBOOT_ORDER[:3]
"""The reboots that concern the host. DPUs do the others themselves."""
POWER_CYCLE = "ipmitool chassis power cycle"
REBOOT_COMMANDS = {"PowerCycle": POWER_CYCLE, "SystemLevelReset": POWER_CYCLE, "SystemReboot": "systemctl reboot"}
"""The commands unless others are given. A power cycle also resets the whole system."""


_DEVICE_ID = re.compile(r"[0-9a-f]{4}")
_INTERFACE_NAME = re.compile(r"[A-Za-z0-9._-]{1,15}")
"""Linux has no longer names of network interfaces."""


class Roots(NamedTuple):
    """The file systems of the host, as the agent sees them."""

    sys: Path
    proc: Path
    dev: Path


def _name(context: click.Context, parameter: click.Parameter, given: str) -> str:
    fault = check_object_name(parameter.name or "", given)
    if fault is not None:
        raise click.BadParameter(fault)
    return given


def _reboot_commands(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    found = {method: shlex.split(command) for method, command in REBOOT_COMMANDS.items()}
    for each in given:
        method, separator, text = each.partition("=")
        if method not in REBOOT_METHODS or not separator:
            raise click.BadParameter(f"{quoted(each)} must be METHOD=COMMAND, with {', '.join(REBOOT_METHODS)}")
        try:
            command = shlex.split(text)
        except ValueError as error:
            raise click.BadParameter(f"{quoted(text)} is not a command: {error}") from error
        if not command:
            raise click.BadParameter(f"{method} must have a command")
        found[method] = command
    return found


def _device_ids(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Sequence[str]:
    """The ids as sysfs prints them, without 0x."""
    found = [each.lower().removeprefix("0x") for each in given]
    for each, text in zip(found, given, strict=True):
        if not _DEVICE_ID.fullmatch(each):
            raise click.BadParameter(f"{quoted(text)} must be four hexadecimal digits, such as a2dc")
    return found


def _interface_name(context: click.Context, parameter: click.Parameter, given: str) -> str:
    if not _INTERFACE_NAME.fullmatch(given) or given in (".", ".."):
        raise click.BadParameter(f"{quoted(given)} must be a name of 1 to 15 letters, digits, '.', '_' and '-'")
    return given


def _interface_addresses(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Sequence[str]:
    for each in given:
        try:
            ip_interface(each)
        except ValueError:
            raise click.BadParameter(f"{quoted(each)} must be ADDRESS/LENGTH") from None
        if "/" not in each:
            raise click.BadParameter(f"{quoted(each)} must be ADDRESS/LENGTH")
    return given


def _root(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    kind = click.Path(file_okay=False, exists=True, path_type=Path)
    return click.option(f"--{name}-root", type=kind, default=f"/{name}", show_default=True, metavar="DIR", help=text)


@click.command(
    epilog="\b\nExample: dpuplane host-agent --server plane:7080 --node node-1 --namespace dpf-operator-system",
)
@click.option(
    "--server",
    "servers",
    callback=addresses,
    default=SERVER_DEFAULT,
    envvar="DPUPLANE_SERVER",
    show_default=True,
    metavar="HOST:PORT,...",
    help="API of the plane; if one server fails, the next is used.",
)
@click.option("--node", required=True, envvar="NODE_NAME", callback=_name, metavar="NAME", help="Name of this host.")
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    callback=_name,
    metavar="NAME",
    help="Namespace of the DPUNode and DPUDevices.",
)
@click.option(
    "--device-id",
    "device_ids",
    multiple=True,
    default=DEVICE_IDS,
    show_default=True,
    callback=_device_ids,
    metavar="HEX",
    help="PCI device id of DPUs; may be repeated.",
)
@click.option(
    "--features",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Feature file for node feature discovery, such as /etc/kubernetes/node-feature-discovery/features.d/dpu.",
)
@click.option(
    "--reboot-command",
    "reboot_commands",
    multiple=True,
    callback=_reboot_commands,
    metavar="METHOD=COMMAND",
    help=f"Command that reboots the host, for {', '.join(REBOOT_METHODS)}; may be repeated.  "
    f"[{POWER_CYCLE}; systemctl reboot]",
)
@click.option(
    "--bridge",
    default=BRIDGE,
    show_default=True,
    callback=_interface_name,
    metavar="NAME",
    help="Bridge of the host that gets the first VF of each DPU.",
)
@click.option(
    "--bridge-address",
    "bridge_addresses",
    multiple=True,
    callback=_interface_addresses,
    metavar="ADDRESS/LENGTH",
    help="Address of the bridge; may be repeated.  [those that it has]",
)
@click.option(
    "--vfs",
    type=click.IntRange(0, 1_024),
    default=VFS,
    show_default=True,
    help="VFs to make on a DPU that has none.",
)
@click.option(
    "--interval",
    type=Seconds(0.1, 3_600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two questions for tasks.",
)
@_root("sys", "The host's sysfs.")
@_root("proc", "The host's procfs.")
@_root("dev", "The host's devices.")
@click.option("--seed", type=int, help="Seed of every random choice.  [a new one]")
@tls_options
def host_agent(
    *,
    servers: list[str],
    node: str,
    namespace: str,
    device_ids: tuple[str, ...],
    features: Path | None,
    reboot_commands: Mapping[str, Sequence[str]],
    bridge: str,
    bridge_addresses: Sequence[str],
    vfs: int,
    interval: float,
    seed: int | None,
    sys_root: Path,
    proc_root: Path,
    dev_root: Path,
    **tls: Path | None,
) -> None:
    """Run the agent of this host, until SIGTERM or SIGINT.

    The agent finds the DPUs on the PCI bus and reports them with the boot of the host: the plane then has a DPUNode and
    DPUDevices of them. It asks for the tasks that open steps of these DPUs have for the host, such as its reboot, does
    them and reports their end. It keeps no state of its own. Prints one line that begins with `ready`.
    """
    from deploy.process.life import run_until_signal
    from deploy.telemetry.logs import configure_logs

    configure_logs()
    serving = _serve(
        servers,
        node,
        namespace,
        roots=Roots(sys_root, proc_root, dev_root),
        device_ids=device_ids,
        features=features,
        reboot_commands=reboot_commands,
        network=HostNetwork(bridge, bridge_addresses, vfs),
        interval_s=interval,
        rng=random.Random(seed),
        certificates=certificates_of(**tls),
    )
    sys.exit(run_until_signal(serving))


async def _serve(
    servers: list[str],
    node: str,
    namespace: str,
    *,
    roots: Roots,
    device_ids: Sequence[str],
    features: Path | None,
    reboot_commands: Mapping[str, Sequence[str]],
    network: HostNetwork,
    interval_s: float,
    rng: random.Random,
    certificates: Certificates | None,
) -> None:
    from commands.client.client import PlaneClient
    from deploy.clock import now_ms
    from deploy.host_agent.agent import HostAgent, HostIdentity
    from deploy.host_agent.boot import read_boot
    from deploy.host_agent.image_source import image_source
    from deploy.host_agent.install import InstallAction
    from deploy.host_agent.network import NetworkAction
    from deploy.host_agent.only_one import only_one
    from deploy.host_agent.reboot import RebootAction
    from deploy.host_agent.restart import RestartAction
    from eventstore.ids import uuid7

    principal = "" if certificates else PRINCIPAL
    context = None if certificates is None else certificates.client_context
    client = PlaneClient(
        servers, timeout_s=10.0, now_ms=now_ms, rng=rng, rounds=2, principal=principal, certificates=certificates
    )
    boot = partial(read_boot, roots.proc)
    boot()
    identity = HostIdentity(node, namespace, uuid7(now_ms(), rng))
    with only_one(namespace, node):
        async with client:
            agent = HostAgent(
                client,
                identity,
                boot=boot,
                devices=partial(_found, roots, device_ids, features, network.bridge),
                actions={
                    REBOOT: RebootAction(node, reboot_commands, boot),
                    NETWORK: NetworkAction(roots.sys, network),
                    INSTALL: InstallAction(roots.dev, image_source(context)),
                    RESTART: RestartAction(roots.dev),
                },
                interval_s=interval_s,
                rng=rng,
            )
            sys.stdout.write(f"ready node={node} namespace={namespace}\n")
            sys.stdout.flush()
            await agent.run()


def _found(roots: Roots, device_ids: Sequence[str], features: Path | None, bridge: str) -> list[FoundDevice]:
    """The DPUs of the host; the feature file gets them, too."""
    from deploy.host_agent.features import features_text, write_features

    devices = find_devices(roots.sys, roots.dev, device_ids)
    if features is not None:
        write_features(features, features_text(devices, has_bridge=(roots.sys / "class/net" / bridge).exists()))
    return devices

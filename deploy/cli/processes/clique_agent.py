"""`dpuplane clique-agent`: it runs in a daemon's pod, claims an index of the clique, and runs the daemon."""

from __future__ import annotations

import random
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.cli.shared.param_types import addresses
from deploy.cli.shared.tls import certificates_of, tls_options
from projections import field_checks

if TYPE_CHECKING:
    from deploy.clique_agent.agent import MemberIdentity
    from deploy.tls.certificates import Certificates

SERVER_DEFAULT = "127.0.0.1:7080"
PRINCIPAL = "clique-agent"
"""The unverified name of an agent without a certificate."""


@click.command(
    epilog="\b\nExample: dpuplane clique-agent --server plane:7080 -- nvidia-imex -c /imexd/imexd.cfg",
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
@click.option("--domain", required=True, envvar="COMPUTE_DOMAIN_UUID", metavar="UID", help="Uid of the domain.")
@click.option("--clique", required=True, envvar="CLIQUE_ID", metavar="ID", help="Id of the clique.")
@click.option("--node", required=True, envvar="NODE_NAME", metavar="NAME", help="Name of this node.")
@click.option("--address", required=True, envvar="POD_IP", metavar="ADDRESS", help="Address for the daemon's peers.")
@click.option("--uid", required=True, envvar="POD_UID", metavar="UID", help="Uid of this pod.")
@click.option(
    "--created",
    envvar="POD_CREATED",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]),
    help="Creation time of this pod.  [the start of the agent]",
)
@click.option(
    "--peers-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/imexd/nodes.cfg"),
    show_default=True,
    metavar="FILE",
    help="The daemon's list of peers; the agent writes it.",
)
@click.option(
    "--hosts-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/etc/hosts"),
    show_default=True,
    metavar="FILE",
    help="The hosts file; the agent replaces its own lines and keeps the others.",
)
@click.option(
    "--check",
    default="",
    metavar="COMMAND",
    help="Command that prints READY while the daemon is ready.  [ready while the daemon runs]",
)
@click.option(
    "--release/--keep", default=True, show_default=True, help="Release the index at the end, or keep it for this node."
)
@click.option("--seed", type=int, help="Seed of every random choice.  [a new one]")
@tls_options
@click.argument("command", nargs=-1, required=True)
def clique_agent(
    *,
    servers: list[str],
    domain: str,
    clique: str,
    node: str,
    address: str,
    uid: str,
    created: datetime | None,
    peers_file: Path,
    hosts_file: Path,
    check: str,
    release: bool,
    seed: int | None,
    command: tuple[str, ...],
    **tls: Path | None,
) -> None:
    """Run the daemon COMMAND of a clique's member, until SIGTERM or SIGINT.

    The agent claims an index for its node, writes the daemon's files, starts the daemon once the node has an index,
    signals it (SIGUSR1) after changes of its peers, at most once in 5 s, restarts it when its own index has changed,
    and reports whether it is ready. Prints one line that begins with `ready`.
    """
    from deploy.clique_agent.agent import MemberIdentity
    from deploy.clock import now_ms
    from deploy.process.life import run_until_signal
    from deploy.telemetry.logs import configure_logs

    created_ms = round(created.replace(tzinfo=UTC).timestamp() * 1_000) if created else now_ms()
    _check(field_checks.check_clique("domain", domain))
    _check(field_checks.check_clique("clique", clique))
    _check(field_checks.check_name("node", node))
    _check(field_checks.check_uid("uid", uid))
    member = MemberIdentity(domain, clique, node, _address(address), uid, created_ms)
    configure_logs()
    serving = _serve(
        servers,
        member,
        command,
        peers=peers_file,
        hosts=hosts_file,
        check=shlex.split(check),
        releases=release,
        rng=random.Random(seed),
        certificates=certificates_of(**tls),
    )
    sys.exit(run_until_signal(serving))


def _check(fault: str | None) -> None:
    if fault is not None:
        raise click.UsageError(fault)


def _address(text: str) -> str:
    try:
        return field_checks.canonical_address("address", text)
    except field_checks.BadAddress as error:
        raise click.UsageError(str(error)) from error


async def _serve(
    servers: list[str],
    member: MemberIdentity,
    command: tuple[str, ...],
    *,
    peers: Path,
    hosts: Path,
    check: list[str],
    releases: bool,
    rng: random.Random,
    certificates: Certificates | None,
) -> None:
    from commands.client.client import PlaneClient
    from deploy.clique_agent.agent import CliqueAgent
    from deploy.clique_agent.daemon_process import DaemonProcess
    from deploy.clique_agent.files import DaemonFiles
    from deploy.clock import now_ms

    principal = "" if certificates else PRINCIPAL
    client = PlaneClient(
        servers, timeout_s=10.0, now_ms=now_ms, rng=rng, rounds=3, principal=principal, certificates=certificates
    )
    async with client:
        daemon = DaemonProcess(command, rng)
        agent = CliqueAgent(
            client,
            member,
            DaemonFiles(peers, hosts),
            daemon,
            check=check,
            releases=releases,
            now_ms=now_ms,
            rng=rng,
        )
        sys.stdout.write(f"ready node={member.node} domain={member.domain} clique={member.clique}\n")
        sys.stdout.flush()
        await agent.run()

"""`dpuplane status`: who is there, how far everyone is, and what needs a human."""

from __future__ import annotations

import click

from deploy.cli import output as out
from deploy.cli.client import Client
from deploy.cli.options import looks_back
from deploy.plain import to_plain
from schemas.api import dpuplane_pb2 as pb


@click.command()
@looks_back
def status(*, client: Client, output: str) -> None:
    """Show replicas with role, version, position, lag and fold version; partitions halted or not forwarded; holds.

    Example: dpuplane status --output json
    """
    found: pb.Status = client.query("ShowStatus", pb.ShowStatusRequest())
    if output != "table":
        out.print_value(to_plain(found), output)
        return
    out.print_fields(summary(found))
    for replica in found.replicas:
        click.echo(f"\n{heading_of(replica)}")
        out.print_table(
            ("partition", "position", "lag", "fold", "quarantined", "digest"),
            (
                (p.partition, p.position, p.lag_records, p.fold_version, p.quarantined, p.halted or p.digest)
                for p in replica.partitions
            ),
        )


def heading_of(replica: pb.Replica) -> str:
    """A replica in one line: what it does, where it listens yet, and which version of the program it is."""
    addresses = " ".join(f"{name}={address}" for name, address in sorted(replica.addresses.items()))
    version = f"version {replica.version}" if replica.version else ""
    return "; ".join(filter(None, (f"{replica.name}: {', '.join(replica.roles)}", addresses, version)))


def summary(found: pb.Status) -> list[tuple[str, str]]:
    """What needs no table: the log, and whatever waits for a human."""
    return [
        ("log", f"{found.log_id}, generation {found.generation}, {_location(found.log)}"),
        ("holds", f"{found.holds}{' (see dpuplane holds list)' if found.holds else ''}"),
        ("frozen", ", ".join("all zones" if zone == "*" else zone for zone in found.frozen) or "nothing"),
        *((f"halted {h.partition}", f"on {h.replica}: {h.reason}") for h in found.halted),
        *(
            (
                f"newer on {r.name}",
                f"{r.newer_dpus} DPUs hold more than this log, which was restored, knows: see verify",
            )
            for r in found.replicas
            if r.newer_dpus
        ),
        *((f"not forwarded {s.partition}", s.reason) for s in found.stalled),
    ]


def _location(log: pb.LogLocation) -> str:
    if log.engine == "kafka":
        return f"on Kafka at {','.join(log.bootstrap)}, topics {log.topic_prefix}.*"
    return f"{log.engine}, in {log.data}"

"""`dpuplane status`: the replicas, their lag, and everything that needs a person."""

from __future__ import annotations

from collections.abc import Sequence

import click

from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.options import show_options
from deploy.cli.shared.output import Output
from schemas.api import dpuplane_pb2 as pb

_NAMED = 5
"""Maximum number of zones that are named on one line; the others are counted."""
_AHEAD = "delete them if no other plane writes to the cluster, see ObjectsAheadOfLog in the runbook"


@click.command()
@click.option("--digests", is_flag=True, help="Show every partition of every replica, like -o wide.")
@show_options
def status(*, client: Client, output: Output, digests: bool) -> None:
    """Print a verdict, the log, holds and freezes, and each replica with its role, version and lag.

    -o wide adds a row per partition: position, lag, fold version, quarantined records, digest. JSON and YAML have all
    fields.

    Example: dpuplane status --output wide
    """
    found: pb.Status = client.query("GetStatus", pb.GetStatusRequest())
    is_wide = digests or output.format == "wide"
    output.print_one(found, found.log_id, lambda: _print_status(found, is_wide=is_wide))


def _print_status(found: pb.Status, *, is_wide: bool) -> None:
    out.print_fields([("verdict", verdict(found)), *summary(found)])
    if is_wide:
        _print_partitions(found.replicas)
    elif found.replicas:
        click.echo()
        out.print_table(
            ("replica", "roles", "version", "partitions", "lag", "halted", "quarantined", "addresses"),
            map(row_of, found.replicas),
        )


def verdict(found: pb.Status) -> str:
    """The verdict on the plane, in one line that names the fields to look at."""
    wrong = [
        *(f"{len(found.halted)} halted" for _ in found.halted[:1]),
        *(f"{len(found.stalled)} not forwarded" for _ in found.stalled[:1]),
        *(f"{len(found.clock_faults)} clock faults" for _ in found.clock_faults[:1]),
        *("DPUs hold newer tables than this log" for r in found.replicas if r.dpus_ahead_of_log),
        *("revoked certificates not read" for r in found.replicas if r.revocations_fault),
        *(f"source {name} not watched" for name in _unwatched(found.replicas)),
        *(f"objects of source {s.source} ahead of this log" for r in found.replicas for s in r.sources if s.ahead),
    ]
    quarantined = max((sum(p.quarantined for p in r.partitions) for r in found.replicas), default=0)
    look = [
        *(f"{found.holds} held" for _ in range(min(found.holds, 1))),
        *(f"{'every zone' if '*' in found.frozen else len(found.frozen)} frozen" for _ in found.frozen[:1]),
        *(f"{quarantined} records quarantined" for _ in range(min(quarantined, 1))),
    ]
    if wrong:
        return f"wrong: {', '.join([*dict.fromkeys(wrong), *look])}"
    if look:
        return f"look: {', '.join(look)}; nothing is broken"
    return "ok: nothing is halted, held or frozen"


def row_of(replica: pb.Replica) -> Sequence[object]:
    """A replica as one row, with the sums over its partitions."""
    return (
        replica.name,
        ",".join(replica.roles),
        replica.version,
        len(replica.partitions),
        sum(p.lag_records for p in replica.partitions),
        sum(bool(p.halted) for p in replica.partitions),
        sum(p.quarantined for p in replica.partitions),
        _addresses(replica),
    )


def heading_of(replica: pb.Replica) -> str:
    """A replica in one line: its roles, its addresses, and its program version."""
    version = f"version {replica.version}" if replica.version else ""
    return "; ".join(filter(None, (f"{replica.name}: {', '.join(replica.roles)}", _addresses(replica), version)))


def summary(found: pb.Status) -> list[tuple[str, str]]:
    """The lines before the table: the log, and everything that waits for a person."""
    return [
        ("log", f"{found.log_id}, generation {found.generation}, {_location(found.log)}"),
        ("holds", f"{found.holds}{' (see dpuplane holds list)' if found.holds else ''}"),
        ("frozen", _zones(found.frozen)),
        *((f"halted {h.partition}", f"on {h.replica}: {h.reason}") for h in found.halted),
        *(
            (
                f"newer on {r.name}",
                f"{r.dpus_ahead_of_log} DPUs hold newer tables than this restored log: see `dpuplane verify`",
            )
            for r in found.replicas
            if r.dpus_ahead_of_log
        ),
        *(
            (f"revoked on {r.name}", f"the last good list of certificates is in use: {r.revocations_fault}")
            for r in found.replicas
            if r.revocations_fault
        ),
        *((f"source {s.source}", _edge(r, s)) for r in found.replicas for s in r.sources),
        *((f"not forwarded {s.partition}", s.reason) for s in found.stalled),
        *(("clock", fault) for fault in found.clock_faults),
    ]


def _print_partitions(replicas: Sequence[pb.Replica]) -> None:
    for replica in replicas:
        click.echo(f"\n{heading_of(replica)}")
        out.print_table(
            ("partition", "position", "lag", "fold", "quarantined", "digest"),
            (
                (p.partition, p.position, p.lag_records, p.fold_version, p.quarantined, p.halted or p.digest)
                for p in replica.partitions
            ),
        )


def _unwatched(replicas: Sequence[pb.Replica]) -> list[str]:
    """The source clusters that no replica watches at present."""
    watched = {source.source for replica in replicas for source in replica.sources if source.watched}
    return sorted({source.source for replica in replicas for source in replica.sources} - watched)


def _edge(replica: pb.Replica, source: pb.SourceStatus) -> str:
    """The state of an edge in one line."""
    watched = f"{'' if source.watched else 'not '}watched by {replica.name}"
    why = [] if source.watched else [source.fault or "its API server does not respond"]
    refused = [f"{source.refused} refused"] if source.refused else []
    retained = [f"{source.retained} stay that it lists no more"] if source.retained else []
    ahead = [f"{source.ahead} objects are ahead of this log: {_AHEAD}"] if source.ahead else []
    return "; ".join([watched, *why, ", ".join([f"{source.nodes} Nodes", *refused, *retained]), *ahead])


def _addresses(replica: pb.Replica) -> str:
    return " ".join(f"{name}={address}" for name, address in sorted(replica.addresses.items()))


def _zones(frozen: Sequence[str]) -> str:
    if not frozen or "*" in frozen:
        return "all zones" if frozen else "nothing"
    more = f" and {len(frozen) - _NAMED} more" if len(frozen) > _NAMED else ""
    return f"{', '.join(frozen[:_NAMED])}{more}"


def _location(log: pb.LogLocation) -> str:
    if log.engine == "kafka":
        return f"on Kafka at {','.join(log.bootstrap)}, topics {log.topic_prefix}.*"
    return f"{log.engine}, in {log.data}"

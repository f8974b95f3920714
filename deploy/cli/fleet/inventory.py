"""`dpuplane import`: joins and clique claims from an inventory file.

The whole file is read and checked before any request is sent. Joins are one stream of batches; the claims of a clique
are one call; a summary has all outcomes. The id of every request derives from `--command-id`, so an interrupted import
can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from commands.inventory.batches import ExistingNode
from commands.inventory.claims import claim_requests
from commands.inventory.comparison import Comparison, compare
from commands.inventory.plan import CliquePlan, ImportOptions, InventoryError, InventoryPlan, NodeBatch
from deploy.cli.fleet.inventory_existing import held_by_import, read_existing
from deploy.cli.fleet.inventory_options import inventory_options, read_inventory
from deploy.cli.shared import output as out
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import REFUSED, UNKNOWN, ConfirmationRequired, NotFoundError, Refused
from deploy.cli.shared.options import command_options, list_all_pages
from deploy.cli.shared.progress import ProgressLine
from deploy.cli.shared.results import merged_position, results_of
from deploy.serialization import message_to_dict
from projections.cliques.state import MAX_CAPACITY
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name

_STREAM_TIMEOUT_S = 3_600.0
_MAX_REFUSALS = 100
_SHOWN_REFUSALS = 20
_SHOWN_HOLDS = 5


@click.command("import", epilog="Example: dpuplane import nodes.csv --zone-size 32 --address-pool 10.0.0.0/16")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@inventory_options
@click.option("--dry-run", is_flag=True, help="Print the changes; send nothing.")
@click.option("--yes", is_flag=True, help="Import even if most of the known nodes get another address or zone.")
@click.option(
    "--clique-size",
    type=click.IntRange(1, MAX_CAPACITY),
    metavar="N",
    help="Nodes of a clique, in file order.  [18 with --clique-when, else no cliques]",
)
@command_options
def import_file(
    *,
    client: Client,
    output: str,
    file: Path,
    reading: Callable[..., ImportOptions],
    dry_run: bool,
    yes: bool,
    clique_size: int | None,
) -> None:
    """Join the nodes of a CSV or JSON lines file, and claim clique indices for them.

    Columns without another meaning become labels. Bad rows are reported by line, and the file is refused unless they
    may be skipped. A file that would give most of the known nodes another address or zone needs --yes: a missing row or
    another pool can cause that.

    --dry-run compares the file with the last join of each node, and counts the nodes that a hold keeps in their earlier
    state. It cannot predict whether budgets would hold the import: the plane decides that when the nodes join.
    """
    options = reading(clique_size=clique_size or 0)
    plan = _read(file, options)
    existing = read_existing(client)
    if options.address_pool:
        plan = _read(file, options, existing.nodes)
    _refuse_foreign_cliques(client, plan)
    found = compare(plan, existing.nodes)
    summary = _start(plan, found)
    summary.held_before = sum(name in existing.held for batch in plan.batches for name in batch.names)
    if dry_run:
        summary.dry_run = True
        _finish(summary, output)
    if found.shifts_most and not yes:
        raise ConfirmationRequired(_shift(found))
    summary.command_id = client.use_one_command_id()
    try:
        _join(client, plan, summary)
        _claim(client, plan, summary)
    except KeyboardInterrupt:
        click.echo("interrupted; part of the file may be applied: repeat the import to apply the rest", err=True)
        raise
    names = (name for batch in plan.batches for name in batch.names)
    summary.held, holds = held_by_import(client, set(names), existing, summary.position)
    summary.holds.extend(holds if summary.held else ())
    _finish(summary, output)


def _shift(found: Comparison) -> str:
    known = found.moved + found.changed + found.unchanged
    return (
        f"nodes: {found.readdressed} of the {known} known nodes of the file would get another address and {found.moved}"
        " another zone, so nothing was applied; check it with --dry-run, and apply it with --yes"
    )


def _read(file: Path, options: ImportOptions, existing: Mapping[str, ExistingNode] | None = None) -> InventoryPlan:
    """The plan of a file. Raises Refused, after all bad rows were printed."""
    try:
        return read_inventory(file, options, existing)
    except Refused as refused:
        if isinstance(refused.__cause__, InventoryError) and refused.__cause__.count > 1:
            for fault in refused.__cause__.faults:
                click.echo(f"{file}: {fault}", err=True)
            count = refused.__cause__.count
            raise Refused(f"{file}: {count} rows are invalid, so nothing was applied; see --skip-bad-rows") from refused
        raise


def _refuse_foreign_cliques(client: Client, plan: InventoryPlan) -> None:
    """Raises Refused if a clique of the plan exists with other nodes: these nodes belong to another fleet, and the two
    fleets would share the clique's indices."""
    if not plan.cliques:
        return
    domain = plan.cliques[0].domain
    try:
        found = list_all_pages(
            client,
            "ListCliques",
            pb.ListCliquesRequest(domain=domain),
            pb.ListCliquesResponse,
            "cliques",
            by=("clique",),
        )
    except NotFoundError:
        return
    planned = {clique.clique: {node for node, _ in clique.members} for clique in plan.cliques}
    for clique in found.cliques:
        there = {member.node for member in clique.members} | {waiter.node for waiter in clique.waiting}
        theirs = there - planned.get(clique.clique, there)
        if theirs:
            raise Refused(
                f"clique_domain: {quoted(domain)} already has a clique {clique.clique} with node {quoted(min(theirs))},"
                " and this file does not put that node into the clique; nothing was applied; name another domain with"
                " --clique-domain"
            )


def _start(plan: InventoryPlan, found: Comparison) -> pb.ImportSummary:
    for fault in plan.skipped:
        click.echo(f"skipped {fault}", err=True)
    return pb.ImportSummary(
        nodes=plan.node_count,
        zones=len(plan.zones),
        cliques=len(plan.cliques),
        skipped_rows=plan.skipped_count,
        skipped=map(str, plan.skipped),
        new=found.new,
        moved=found.moved,
        changed=found.changed,
        unchanged=found.unchanged,
        not_in_file=found.not_in_file,
        addresses_added=found.added,
        addresses_removed=found.removed,
    )


def _join(client: Client, plan: InventoryPlan, summary: pb.ImportSummary) -> None:
    def requests() -> Iterator[pb.JoinNodesRequest]:
        sent = 0
        with ProgressLine("import") as progress:
            for batch in plan.batches:
                yield _request(batch, client.next_command_id())
                sent += len(batch.names)
                progress.show(f"{sent:,} of {plan.node_count:,} nodes sent", sent / plan.node_count)

    joined: pb.JoinSummary = client.stream("JoinNodesStream", requests(), _STREAM_TIMEOUT_S)
    summary.joined, summary.unknown = joined.done, joined.unknown
    summary.refused = joined.refused + joined.not_appended
    summary.refusals.extend(joined.refusals)
    summary.refusals.extend(_refusal(error) for error in joined.errors)
    summary.position = joined.position


def _refusal(error: pb.RequestError) -> pb.CommandResult:
    return pb.CommandResult(
        command_id=error.command_id,
        outcome=pb.OUTCOME_REFUSED,
        reason=error.reason,
        reason_code=error.reason_code,
        reason_fields=error.reason_fields,
    )


def _request(batch: NodeBatch, command_id: str) -> pb.JoinNodesRequest:
    columns = pb.NodeColumns(
        names=batch.names,
        addresses4=batch.addresses4,
        addresses6=batch.addresses6,
        label_sets=[pb.LabelSet(labels=labels) for labels in batch.label_sets],
        label_index=batch.label_index,
    )
    return pb.JoinNodesRequest(command_id=command_id, zone=batch.zone, columns=columns)


def _claim(client: Client, plan: InventoryPlan, summary: pb.ImportSummary) -> None:
    for clique, answer in zip(
        plan.cliques, client.pipelined("SetCliqueCapacity", map(_capacity, plan.cliques)), strict=True
    ):
        _count([clique.clique], answer, summary)
    requests = [claims for clique in plan.cliques for claims in claim_requests(clique)]
    answered, count = 0, sum(len(request.claims) for request in requests)
    with ProgressLine("import") as progress:
        for request, answer in zip(requests, client.pipelined("ClaimIndices", requests), strict=True):
            outcomes = _count([claim.node for claim in request.claims], answer, summary)
            summary.claims += outcomes[pb.OUTCOME_DONE] + outcomes[pb.OUTCOME_UNCHANGED]
            summary.claims_waiting += outcomes[pb.OUTCOME_WAITING]
            answered += len(request.claims)
            progress.show(f"{answered:,} of {count:,} claims answered", answered / count)


def _capacity(clique: CliquePlan) -> pb.SetCliqueCapacityRequest:
    return pb.SetCliqueCapacityRequest(domain=clique.domain, clique=clique.clique, capacity=clique.capacity)


def _count(names: Sequence[str], answer: pb.CommandResult, summary: pb.ImportSummary) -> Counter[pb.Outcome]:
    """Add a result about these names to the summary; returns the count of each outcome."""
    items = list(results_of(names, answer))
    failed = [item for item in items if item.outcome in (pb.OUTCOME_REFUSED, pb.OUTCOME_UNKNOWN)]
    if failed and len(summary.refusals) < _MAX_REFUSALS:
        refusal = pb.CommandResult(command_id=answer.command_id, outcome=answer.outcome, reason=answer.reason)
        refusal.items.extend(failed)
        summary.refusals.append(refusal)
    outcomes = Counter(item.outcome for item in items)
    summary.claims_refused += outcomes[pb.OUTCOME_REFUSED]
    summary.claims_unknown += outcomes[pb.OUTCOME_UNKNOWN]
    summary.position = merged_position([summary.position, answer.position])
    return outcomes


def _finish(summary: pb.ImportSummary, output: str) -> None:
    for answer in summary.refusals[:_SHOWN_REFUSALS]:
        for item in answer.items or [pb.ItemResult(outcome=answer.outcome, reason=answer.reason)]:
            said = " ".join(filter(None, (item.name, item.reason)))
            click.echo(f"{outcome_name(item.outcome)}: {said}", err=True)
    if len(summary.refusals) > _SHOWN_REFUSALS:
        more = len(summary.refusals) - _SHOWN_REFUSALS
        some = "at least " if len(summary.refusals) >= _MAX_REFUSALS else ""
        click.echo(f"and {some}{more} more", err=True)
    if output == "table":
        _print(summary)
    else:
        out.print_value(message_to_dict(summary), output)
    if summary.unknown or summary.claims_unknown:
        click.get_current_context().exit(UNKNOWN)
    click.get_current_context().exit(REFUSED if summary.refused or summary.claims_refused else 0)


def _print(summary: pb.ImportSummary) -> None:
    claims = (
        f"{summary.claims} got an index, {summary.claims_waiting} wait, {summary.claims_refused} refused,"
        f" {summary.claims_unknown} unknown"
    )
    out.print_fields(
        (
            ("zones", summary.zones),
            ("cliques", summary.cliques),
            *([] if summary.dry_run else [("claims", claims)]),
            ("rows skipped", summary.skipped_rows),
            ("compared", _compared(summary)),
            ("addresses", f"{summary.addresses_added} appear, {summary.addresses_removed} vanish"),
            *(_foreseen(summary) if summary.dry_run else ()),
            ("nodes", _told(summary)),
        )
    )


def _foreseen(summary: pb.ImportSummary) -> tuple[tuple[str, object], ...]:
    """The lines about holds in the output of a dry run."""
    kept = "; the rule tables have their previous state, and this comparison uses their newest state"
    return (
        ("held already", f"{summary.held_before} of these nodes{kept if summary.held_before else ''}"),
        ("would be held", "unknown until the import is applied; see `dpuplane budgets list`"),
    )


def _compared(summary: pb.ImportSummary) -> str:
    gone = (
        f"; {summary.not_in_file} in these zones are not in the file and stay unchanged" if summary.not_in_file else ""
    )
    existing = f"{summary.moved} moved, {summary.changed} changed, {summary.unchanged} unchanged"
    return f"{summary.new} new, {existing}{gone}"


def _told(summary: pb.ImportSummary) -> str:
    if summary.dry_run:
        return f"{summary.nodes} would be sent; nothing was applied"
    told = f"{summary.joined} joined, {summary.refused} refused, {summary.unknown} unknown"
    if not summary.held:
        return f"{told}, 0 held"
    holds = ", ".join(map(str, summary.holds[:_SHOWN_HOLDS])) + (", ..." if len(summary.holds) > _SHOWN_HOLDS else "")
    quoted = f"dpuplane holds list --command {summary.command_id}: {holds}"
    return f"{told}, {summary.held} held in their previous state until two people approve ({quoted})"

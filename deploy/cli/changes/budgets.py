"""`dpuplane budgets`: limits on how many addresses a change may newly deny or allow before it is held."""

from __future__ import annotations

import click

from deploy.cli.shared.client import Client
from deploy.cli.shared.options import command_options, list_all_pages, list_options
from deploy.cli.shared.output import Column, Output, Table
from deploy.cli.shared.param_types import INT32
from deploy.cli.shared.results import finish
from projections.fleet.withdrawals.budgets import BUDGET_KINDS, UNLIMITED_PERMILLE
from schemas.api import dpuplane_pb2 as pb


def _is_unlimited(budget: pb.Budget) -> bool:
    """Whether the budget has no limit and never holds a change. Its minimum count of addresses then has no effect."""
    return budget.permille >= UNLIMITED_PERMILLE


_TABLE = Table(
    lambda budget: budget.kind,
    (
        Column("kind", lambda budget: budget.kind),
        Column("permille", lambda budget: "no limit" if _is_unlimited(budget) else budget.permille),
        Column("at least", lambda budget: "-" if _is_unlimited(budget) else budget.min_addresses),
    ),
)


@click.group()
def budgets() -> None:
    """List and set budgets: a share of a table per 10 minutes, or a minimum count of addresses if that is more.

    Example: dpuplane budgets set denied-by-leave --permille 100 --min-addresses 1000
    """


@budgets.command("list")
@list_options
def list_budgets(*, client: Client, output: Output, limit: int | None) -> None:
    """List the budgets.

    Example: dpuplane budgets list
    """
    found = list_all_pages(
        client, "ListBudgets", pb.ListBudgetsRequest(), pb.ListBudgetsResponse, "budgets", limit=limit
    )
    output.print_list(found, found.budgets, _TABLE)


@budgets.command("set")
@click.argument("kind", metavar="KIND", type=click.Choice(BUDGET_KINDS))
@click.option("--permille", type=INT32, help="Limit as a share of a table, in thousandths.")
@click.option("--min-addresses", type=INT32, help="Lower bound of the limit, in addresses.")
@click.option("--no-limit", is_flag=True, help="Hold nothing; replaces the two other options.")
@command_options
def set_budget(
    *, client: Client, output: str, kind: str, permille: int | None, min_addresses: int | None, no_limit: bool
) -> None:
    """Set the budget of one kind of change. --permille 1000 has the same effect as --no-limit.

    KIND is denied-by-leave, denied-by-change, allowed-by-change or allowed-by-join.

    \b
    Examples:
      dpuplane budgets set denied-by-change --permille 10 --min-addresses 100
      dpuplane budgets set allowed-by-join --no-limit
    """
    if no_limit and (permille is not None or min_addresses is not None):
        raise click.UsageError("give --no-limit, or --permille and --min-addresses, and not both")
    if no_limit:
        permille, min_addresses = UNLIMITED_PERMILLE, 0
    if permille is None or min_addresses is None:
        raise click.UsageError("give --permille and --min-addresses, or --no-limit")
    finish(
        client.command("SetBudget", pb.SetBudgetRequest(kind=kind, permille=permille, min_addresses=min_addresses)),
        output,
    )

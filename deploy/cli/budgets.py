"""`dpuplane budgets`: how many addresses may be denied or allowed before a change is held."""

from __future__ import annotations

import click

from deploy.cli import output as out
from deploy.cli.answers import finish
from deploy.cli.client import Client
from deploy.cli.options import commands, looks_back
from deploy.cli.values import INT32
from deploy.plain import to_plain
from projections.fleet.withdrawals import KINDS
from schemas.api import dpuplane_pb2 as pb


@click.group()
def budgets() -> None:
    """Budgets: a share of a table, and at least a count, per 10 minutes.

    Example: dpuplane budgets set denied-by-leave --permille 100 --at-least 1000
    """


@budgets.command("list")
@looks_back
def list_budgets(*, client: Client, output: str) -> None:
    """List the budgets.

    Example: dpuplane budgets list
    """
    found: pb.BudgetList = client.query("ListBudgets", pb.ListBudgetsRequest())
    if output != "table":
        out.print_value(to_plain(found), output)
        return
    out.print_table(("kind", "permille", "at least"), ((b.kind, b.permille, b.at_least) for b in found.budgets))


@budgets.command("set")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--permille", type=INT32, required=True, help="Share of a table, in thousandths.")
@click.option("--at-least", type=INT32, required=True, help="And at least so many addresses.")
@commands
def set_budget(*, client: Client, output: str, kind: str, permille: int, at_least: int) -> None:
    """Set a budget. Its name says what it governs; --permille 1000 is no limit.

    Example: dpuplane budgets set denied-by-change --permille 10 --at-least 100
    """
    finish(client.command("SetBudget", pb.SetBudgetRequest(kind=kind, permille=permille, at_least=at_least)), output)

"""The options for reading an inventory file, shared by `import` and `demo --inventory`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from commands.inventory.batches import ExistingNode
from commands.inventory.plan import ImportOptions, InventoryError, InventoryPlan, plan
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.param_types import not_empty
from projections.field_checks import quoted

F = TypeVar("F", bound=Callable[..., Any])


def _column_value(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    column, equals, value = given.partition("=")
    if not column or not equals:
        raise click.BadParameter(f"{quoted(given)} must be COLUMN=VALUE")
    return column, value


_OPTIONS = (
    click.option(
        "--name-column",
        callback=not_empty,
        default="",
        metavar="COLUMN",
        help="Column of the node name.  [name, node, hostname or sn]",
    ),
    click.option(
        "--zone-column", callback=not_empty, default="", metavar="COLUMN", help="Column of the zone.  [zone or rack]"
    ),
    click.option(
        "--zone-size", type=click.IntRange(1), metavar="N", help="Instead of a column: N nodes per zone, in file order."
    ),
    click.option(
        "--address-column",
        callback=not_empty,
        default="",
        metavar="COLUMN",
        help="Column of the address.  [address or ip]",
    ),
    click.option(
        "--address-pool",
        callback=not_empty,
        default="",
        metavar="CIDR",
        help="Instead of a column: hosts of this network, in file order; a node that has one of them keeps it.",
    ),
    click.option(
        "--clique-when", callback=_column_value, metavar="COLUMN=VALUE", help="Only these nodes go into cliques."
    ),
    click.option(
        "--clique-domain", callback=not_empty, default="inventory", show_default=True, help="The domain of the cliques."
    ),
    click.option("--skip-bad-rows", is_flag=True, help="Skip bad rows, instead of refusing the file."),
)


def inventory_options(function: F) -> F:
    """Pass `reading` to a command: a function that takes the clique size and returns the ImportOptions."""

    @functools.wraps(function)
    def run(**given: Any) -> None:
        names = [name for option in _OPTIONS for name in _names(option)]
        options = {name: value for name in names if (value := given.pop(name)) is not None}
        function(reading=functools.partial(ImportOptions, **options), **given)

    decorated: Callable[..., Any] = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[return-value]


def read_inventory(
    path: Path, options: ImportOptions, known: Mapping[str, ExistingNode] | None = None
) -> InventoryPlan:
    """The plan of a file, given the nodes of the plane.

    Raises Refused. The message names the bad rows by line, but only the first rows if there are many.
    """
    try:
        with path.open("rb") as stream:
            return plan(stream, options, known)
    except InventoryError as error:
        raise Refused(f"{path}: {error}") from error
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error


def _names(option: Callable[[Any], Any]) -> list[str]:
    probe = option(lambda: None)
    return [parameter.name for parameter in probe.__click_params__ if parameter.name]

"""`dpuplane wait KIND/NAME --for=...`: waits for objects, in the grammar of `kubectl wait`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from deploy.cli.fleet.wait import WaitState, all_of, wait_until
from deploy.cli.resources.arguments import OBJECTS
from deploy.cli.resources.kinds import full_kind, named_objects
from deploy.cli.resources.manifests import DEFAULT_NAMESPACE
from deploy.cli.resources.options import namespace_option
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import NotFoundError
from deploy.cli.shared.options import wait_options
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb


class Goal(NamedTuple):
    """What is waited for: a status of a condition, or the end of the object if `condition` is empty."""

    text: str
    condition: str = ""
    status: str = "true"


class GoalType(click.ParamType[Goal]):
    """`delete`, `condition=TYPE` or `condition=TYPE=STATUS`; case does not matter, as for kubectl."""

    name = "goal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Goal:
        if isinstance(value, Goal):
            return value
        word, _, rest = value.partition("=")
        condition, _, status = rest.partition("=")
        if value == "delete":
            return Goal(value)
        if word != "condition" or not condition:
            self.fail(f"{quoted(value)} must be delete, condition=TYPE or condition=TYPE=STATUS", param, ctx)
        return Goal(value, condition.lower(), status.lower() or "true")


@click.command(
    "object",
    epilog="Example: dpuplane wait object bfb/old-bundle -n dpf --for=delete",
)
@click.argument("objects", nargs=-1, metavar="KIND/NAME...", type=OBJECTS)
@click.option(
    "--for",
    "goal",
    type=GoalType(),
    metavar="GOAL",
    default="condition=Ready",
    show_default=True,
    help="condition=TYPE (is True), condition=TYPE=STATUS, or delete.",
)
@namespace_option
@wait_options
def wait_object(
    *, client: Client, output: str, timeout: float, objects: Sequence[str], goal: Goal, namespace: str
) -> None:
    """Wait until objects have a condition, or are gone. The word `object` may be omitted, unless the kind is the name
    of a subcommand, as in `wait dpu NAME`: `wait dpu/NAME` waits for an object.
    """
    named = {f"{each.kind.name.lower()}/{each.name}": each for each in named_objects(objects)}
    if not all(each.name for each in named.values()):
        raise click.UsageError("NAME: must be given after KIND")

    def look(name: str) -> WaitState:
        kind = named[name].kind
        at = (namespace or DEFAULT_NAMESPACE) if kind.is_namespaced else ""
        request = pb.GetResourceRequest(kind=full_kind(kind), namespace=at, name=named[name].name)
        more = f"dpuplane describe {name}{f' -n {at}' if at else ''}"
        try:
            found: pb.Resource = client.query("GetResource", request)
        except NotFoundError as error:
            return WaitState(not goal.condition, "it does not exist" if not goal.condition else error.message)
        return _seen(found, goal)._replace(try_next=more)

    wait_until(
        client, all_of(list(named), look), what=", ".join(named), wanted=goal.text, timeout=timeout, output=output
    )


def _seen(found: pb.Resource, goal: Goal) -> WaitState:
    if not goal.condition:
        said = "its deletion waits for the objects that use it" if found.HasField("delete_time") else "it exists"
        return WaitState(enough=False, said=said)
    for each in found.conditions:
        if each.type.lower() == goal.condition:
            said = f"{each.type} is {each.status}{f': {each.message}' if each.message else ''}"
            return WaitState(each.status.lower() == goal.status, said)
    types = ", ".join(each.type for each in found.conditions)
    return WaitState(enough=False, said=f"it has no such condition; it has {types or 'none'}")

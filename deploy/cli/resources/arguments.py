"""Shell completion of kinds, for the arguments KIND NAME..."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class ObjectArgument(click.ParamType[str]):
    """A kind or a name, taken as it is. Kinds are completed."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from schemas.resources.dpf import KINDS

        if ctx.params.get(param.name or ""):
            return []
        return [CompletionItem(kind.plural) for kind in KINDS if kind.plural.startswith(incomplete.lower())]


OBJECTS = ObjectArgument()

"""`dpuplane config`: the contexts of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from deploy.cli.shared.contexts import (
    BadContexts,
    Context,
    Contexts,
    checked,
    context_named,
    contexts_file,
    load_contexts,
    name_fault,
    save_contexts,
)
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.output import FORMATS, Column, Output, Table, print_value

_TABLE = Table(
    lambda row: row["name"],
    (
        Column("current", lambda row: "*" if row["current"] else ""),
        Column("name", lambda row: row["name"]),
        Column("server", lambda row: row["server"]),
        Column("as", lambda row: row["as"]),
        Column("tls cert", lambda row: row["tls_cert"], wide=True),
        Column("tls key", lambda row: row["tls_key"], wide=True),
        Column("tls ca", lambda row: row["tls_ca"], wide=True),
    ),
)


class _ContextName(click.ParamType[str]):
    """The name of a context, which a shell completes."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            names: Iterable[str] = load_contexts(contexts_file()).named
        except BadContexts:
            return []
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


NAME = _ContextName()


@click.group()
def config() -> None:
    """Name planes with their address and certificate as contexts, and choose the one that commands use.

    A flag overrides an environment variable, which overrides the context. The file is ~/.config/dpuplane/config.yaml
    (XDG_CONFIG_HOME), or DPUPLANE_CLIENT_CONFIG.

    Example: dpuplane config set-context lab --server 10.0.0.1:7080
    """


@config.command("get-contexts")
@click.option("--output", "-o", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--no-headers", is_flag=True, help="Omit the heads of the columns.")
def get_contexts(*, output: str, no_headers: bool) -> None:
    """List the contexts.

    Example: dpuplane config get-contexts
    """
    _, contexts = _loaded()
    rows = [
        {
            "name": name,
            "current": name == contexts.current,
            "server": context.server,
            "as": context.principal,
            **{field: getattr(context, field) for field in ("tls_cert", "tls_key", "tls_ca")},
        }
        for name, context in sorted(contexts.named.items())
    ]
    Output(output, headers=not no_headers).print_list({"contexts": rows}, rows, _TABLE)


@config.command("current-context")
def current_context() -> None:
    """Print the name of the current context.

    Example: dpuplane config current-context
    """
    file, contexts = _loaded()
    if not contexts.current:
        raise Refused(f"{file}: no context is current; choose one with `dpuplane config use-context NAME`")
    click.echo(contexts.current)


@config.command()
@click.option("--output", "-o", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def view(*, output: str) -> None:
    """Print the file of contexts.

    Example: dpuplane config view
    """
    print_value(_loaded()[1].to_dict(), output)


@config.command("use-context")
@click.argument("name", type=NAME)
def use_context(name: str) -> None:
    """Make a context the current one.

    Example: dpuplane config use-context lab
    """
    file, contexts = _loaded()
    context_named(contexts, name, file)
    save_contexts(file, contexts._replace(current=name))


@config.command("set-context")
@click.argument("name", type=NAME)
@click.option("--server", metavar="HOST:PORT,...", help="API address of the plane.")
@click.option("--as", "principal", metavar="NAME", help="Your name in the log (unauthenticated; loopback only).")
@click.option("--tls-cert", metavar="FILE", help="Your certificate; a relative path is relative to this folder.")
@click.option("--tls-key", metavar="FILE", help="Key of the certificate.")
@click.option("--tls-ca", metavar="FILE", help="Trusted certificate authority of the plane.")
def set_context(name: str, **given: str | None) -> None:
    """Create a context, or replace the given fields of one. The first context becomes the current one.

    An empty value removes a field.

    \b
    Example: dpuplane config set-context prod --server 10.0.0.1:7080 --tls-cert me.pem --tls-key me.key --tls-ca ca.pem
    """
    file, contexts = _loaded()
    if fault := name_fault(name):
        raise Refused(fault)
    paths = {field for field in ("tls_cert", "tls_key", "tls_ca") if given[field]}
    fields = {field: str(Path(text).absolute()) if field in paths else text for field, text in given.items() if text}
    kept = {field: value for field, value in _fields(contexts, name).items() if given[field] is None}
    changed = {**kept, **fields}
    context = checked(name, {"as" if field == "principal" else field: value for field, value in changed.items()})
    save_contexts(file, Contexts(contexts.current or name, {**contexts.named, name: context}))


@config.command("delete-context")
@click.argument("name", type=NAME)
def delete_context(name: str) -> None:
    """Delete a context.

    Example: dpuplane config delete-context lab
    """
    file, contexts = _loaded()
    context_named(contexts, name, file)
    others = {other: context for other, context in contexts.named.items() if other != name}
    save_contexts(file, Contexts("" if contexts.current == name else contexts.current, others))


def _fields(contexts: Contexts, name: str) -> dict[str, str]:
    context = contexts.named.get(name, Context())
    return {field: value for field, value in context._asdict().items() if value}


def _loaded() -> tuple[Path, Contexts]:
    file = contexts_file()
    return file, load_contexts(file)

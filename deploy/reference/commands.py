"""The page of commands: purpose, example and options of each. Options of many commands are described once, at the
end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import click

from deploy.cli import SUBCOMMANDS, cli
from deploy.reference.markdown import code, table
from deploy.reference.markdown import page as whole

COMMON_FROM = 6
"""An option of at least this many commands is described once for all of them."""

EXAMPLE = re.compile(r"Examples?:\s*(.*)", re.DOTALL)


class Walked(NamedTuple):
    """A command, and its path of names."""

    path: tuple[str, ...]
    command: click.Command


def walk(command: click.Command = cli, path: tuple[str, ...] = ("dpuplane",)) -> Iterator[Walked]:
    """Every command and group, in the order of the help."""
    yield Walked(path, command)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, f"{name} is listed and not there"
            yield from walk(child, (*path, name))


def example_of(command: click.Command) -> list[str]:
    """The lines of the examples in its help."""
    for text in (command.epilog or "", command.help or ""):
        found = EXAMPLE.search(text.replace("\b", ""))
        if found:
            return _lines(found.group(1))
    return []


def _lines(text: str) -> list[str]:
    """The lines before the first empty one."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return lines[: lines.index("")] if "" in lines else lines


def page() -> str:
    """The page of commands."""
    leaves = [walked for walked in walk() if not isinstance(walked.command, click.Group)]
    seen = Counter(key for _, command in leaves for key in map(_key, _options(command)))
    common = {key for key, count in seen.items() if count >= COMMON_FROM}
    named = {_key(option): option for _, command in leaves for option in _options(command)}
    return whole(
        "Commands",
        "Exit status: 0 done, waiting or held; 1 refused; 2 wrong usage; 3 unknown or unreachable.",
        table(("command", ""), [(f"[{name}](#dpuplane-{name})", found.summary) for name, found in SUBCOMMANDS.items()]),
        *(_section(walked, common) for walked in walk() if len(walked.path) > 1),
        "## Common options",
        _table([option for key, option in named.items() if key in common]),
    )


def _section(walked: Walked, common: set[str]) -> str:
    command = walked.command
    usage = " ".join([*walked.path, *command.collect_usage_pieces(click.Context(command))])
    own = [option for option in _options(command) if _key(option) not in common]
    shared = [option.opts[0] for option in _options(command) if _key(option) in common]
    parts = [f"{'#' * len(walked.path)} {' '.join(walked.path)}", code(usage)]
    parts += [_described(command), "```\n" + "\n".join(example_of(command)) + "\n```", _table(own)]
    if shared:
        parts.append(f"[Common options](#common-options): {', '.join(map(code, sorted(shared)))}")
    return "\n\n".join(part.strip("\n") for part in parts if part)


def _described(command: click.Command) -> str:
    """The help without its example."""
    text = EXAMPLE.sub("", (command.help or "").replace("\b", ""))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip())


def _options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option) and not param.hidden]


def _key(option: click.Option) -> str:
    return f"{option.opts[0]} {option.help}"


def _table(options: list[click.Option]) -> str:
    return table(("option", "value", ""), [(_names(o), code(_metavar(o)), _help(o)) for o in options])


def _help(option: click.Option) -> str:
    """The help of an option, with the additions of `--help`: default and environment variable."""
    more = [f"default: {option.default}"] if option.show_default and not isinstance(option.default, bool) else []
    more += [f"environment: {option.envvar}"] if option.envvar else []
    return " ".join([option.help or "", *([f"[{'; '.join(more)}]"] if more else [])])


def _names(option: click.Option) -> str:
    return ", ".join(map(code, sorted([*option.opts, *option.secondary_opts], key=len, reverse=True)))


def _metavar(option: click.Option) -> str:
    return "" if option.is_flag else option.make_metavar(click.Context(click.Command("none")))

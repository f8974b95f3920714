"""The documents under test: their blocks of commands, and a check that the command line accepts each command as
written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from deploy.cli import cli

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", ".git", "node_modules", ".pytest_cache", "vendor", "build", "dist"}
RUN = "sh"
"""The mark of a block that is run as it stands; one that cannot be run anywhere is marked `text`."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
_CODE = re.compile(r"`(dpuplane [^`\n]+)`")
_ENDS = ("&&", "&", "|", ";", ">", "<", "||")


class Block(NamedTuple):
    """A fenced block: its language and its lines."""

    mark: str
    lines: list[str]


def documents() -> list[Path]:
    """Every Markdown file of the tree that is written by hand."""
    return sorted(path for path in ROOT.rglob("*.md") if not SKIPPED & set(path.relative_to(ROOT).parts))


def blocks(text: str) -> list[Block]:
    return [Block(mark, body.splitlines()) for mark, body in _BLOCK.findall(text)]


def command_lines(text: str) -> Iterator[str]:
    """Every line of a document that may contain a command: fenced blocks, indented blocks, and code in a sentence."""
    for block in blocks(text):
        yield from "\n".join(block.lines).replace("\\\n", " ").splitlines()
    rest = _BLOCK.sub("", text)
    yield from _INDENTED.findall(rest)
    yield from _CODE.findall(rest)


def calls(line: str) -> Iterator[list[str]]:
    """The dpuplane calls in a line of shell, as words."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return
    for number, word in enumerate(words):
        is_first = number == 0 or words[number - 1] in _ENDS or words[number - 1].endswith("(")
        if word.rpartition("/")[2].rpartition("(")[2] == "dpuplane" and is_first:
            rest = words[number + 1 :]
            end = next((at for at, text in enumerate(rest) if text in (*_ENDS, ")")), len(rest))
            yield ["dpuplane", *rest[:end]]


def fault_of(words: list[str]) -> str | None:
    """The unknown command or option in a call; None if the parser accepts it."""
    command: click.Command = cli
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith(("-", "[")):
        child = command.get_command(click.Context(command), rest[0])
        if child is None:
            return f"{' '.join(words)}: no command {rest[0]!r}"
        command, rest = child, rest[1:]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"-h", "--help"}
    known |= {"--version"} if command is cli else set()
    options = rest[: rest.index("--")] if "--" in rest else rest
    unknown = [word for word in options if word.startswith("-") and word.partition("=")[0] not in known]
    return f"{' '.join(words)}: no option {unknown[0]}" if unknown else None

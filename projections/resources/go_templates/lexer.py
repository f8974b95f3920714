"""The tokens of a template: its text, and the words within actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from projections.resources.go_templates.syntax import TemplateFault

_OPEN = re.compile(r"\{\{(- )?")
_COMMENT = re.compile(r"\{\{(?:- )?/\*.*?\*/(?: -)?\}\}", re.DOTALL)
_WORD = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
  | (?P<number>[-+]?[0-9]+(?:\.[0-9]+)?(?![\w.]))
  | (?P<field>(?:\.[A-Za-z_]\w*)+)
  | (?P<variable>\$\w*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign>:=|[=|(),.])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """A word of an action."""

    kind: str
    text: str


class Piece(NamedTuple):
    """Text, or an action with its words. `line` is the line at which it begins."""

    line: int
    text: str
    words: tuple[Token, ...] | None


def pieces(template: str) -> Iterator[Piece]:
    """Text and actions in order. `{{-` and `-}}` remove the white space beside them. Raises TemplateFault."""
    at, line, trims = 0, 1, False
    while True:
        opening = _OPEN.search(template, at)
        text = template[at : opening.start() if opening else len(template)]
        shown = text.lstrip() if trims else text
        if opening and opening[1]:
            shown = shown.rstrip()
        if shown:
            yield Piece(line, shown, None)
        line += text.count("\n")
        if opening is None:
            return
        at, words, trims = _action(template, opening, line)
        if words:
            yield Piece(line, "", words)
        line += template.count("\n", opening.start(), at)


def _action(template: str, opening: re.Match[str], line: int) -> tuple[int, tuple[Token, ...], bool]:
    """The end of an action, its words, and whether it removes the white space after it."""
    comment = _COMMENT.match(template, opening.start())
    if comment:
        return comment.end(), (), comment[0].endswith(" -}}")
    at = opening.end()
    words: list[Token] = []
    while True:
        trims = template.startswith(" -}}", at) or (template.startswith("-}}", at) and template[at - 1].isspace())
        end = template.find("}}", at)
        if end < 0:
            raise TemplateFault(f"line {line}: an action has no end")
        if trims:
            return end + 2, tuple(words), True
        if end == at:
            return end + 2, tuple(words), False
        found = _WORD.match(template, at)
        if found is None:
            raise TemplateFault(f"line {line}: unexpected {template[at]!r} in an action")
        if found.lastgroup != "space":
            words.append(Token(str(found.lastgroup), found[0]))
        at = found.end()
        if found.lastgroup == "space" and template.startswith("-}}", at):
            return at + 3, tuple(words), True

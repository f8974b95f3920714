"""The parser of templates."""

from __future__ import annotations

import json

from projections.resources.go_templates.lexer import Piece, Token, pieces
from projections.resources.go_templates.syntax import (
    Action,
    Branch,
    Chain,
    Function,
    Jump,
    Literal,
    Node,
    Operand,
    Pipeline,
    TemplateFault,
    Text,
)

DEPTH_MAX = 30
"""Maximum depth of branches, and of parentheses in an action."""
TEMPLATE_MAX = 256 * 1024
"""Maximum number of characters of a template."""

_BRANCHES = ("if", "with", "range")
_REFUSED = ("define", "block", "template")
_CONSTANTS = {"true": True, "false": False, "nil": None}


def parsed(template: str) -> tuple[Node, ...]:
    """The nodes of a template. Raises TemplateFault."""
    if len(template) > TEMPLATE_MAX:
        raise TemplateFault(f"has {len(template)} characters, more than the {TEMPLATE_MAX} allowed")
    parser = _Parser([*pieces(template)])
    nodes, keyword, line, _ = parser.nodes(0, in_range=False)
    if keyword:
        raise TemplateFault(f"line {line}: {keyword} without a beginning")
    return tuple(nodes)


class _Parser:
    def __init__(self, found: list[Piece]) -> None:
        self._pieces = found
        self._next = 0

    def nodes(self, depth: int, *, in_range: bool) -> tuple[list[Node], str, int, tuple[Token, ...]]:
        """The nodes up to an `end` or `else`: with that word, its line, and the words after it."""
        if depth > DEPTH_MAX:
            raise TemplateFault(f"branches are nested more than {DEPTH_MAX} levels deep")
        found: list[Node] = []
        line = 1
        while self._next < len(self._pieces):
            line, text, words = self._pieces[self._next]
            self._next += 1
            if words is None:
                found.append(Text(text))
                continue
            word = words[0].text
            if word in ("end", "else"):
                return found, word, line, words[1:]
            if word in _REFUSED:
                raise TemplateFault(f"line {line}: {word} is not supported")
            if word in ("break", "continue") and len(words) == 1:
                if not in_range:
                    raise TemplateFault(f"line {line}: {word} outside of a range")
                found.append(Jump(word))
            elif word in _BRANCHES:
                found.append(self._branch(line, words, depth, in_range=in_range))
            else:
                found.append(Action(line, _pipeline(words, line)))
        return found, "", line, ()

    def _branch(self, line: int, words: tuple[Token, ...], depth: int, *, in_range: bool) -> Branch:
        keyword, pipeline = words[0].text, _pipeline(words[1:], line)
        body, end, _, rest = self.nodes(depth + 1, in_range=in_range or keyword == "range")
        other: list[Node] = []
        if end == "else" and rest:
            if rest[0].text not in ("if", "with"):
                raise TemplateFault(f"line {line}: else takes if or with, not {rest[0].text!r}")
            other = [self._branch(line, rest, depth + 1, in_range=in_range)]
            end = "end"
        elif end == "else":
            other, end, _, _ = self.nodes(depth + 1, in_range=in_range)
        if end != "end":
            raise TemplateFault(f"line {line}: {keyword} has no end")
        return Branch(line, keyword, pipeline, tuple(body), tuple(other))


def _pipeline(words: tuple[Token, ...], line: int) -> Pipeline:
    reader = _Words(words, line)
    found = reader.pipeline(0)
    if reader.peek() is not None:
        raise reader.unexpected()
    return found


class _Words:
    """The words of one action."""

    def __init__(self, words: tuple[Token, ...], line: int) -> None:
        self._words = words
        self._next = 0
        self._line = line

    def peek(self, ahead: int = 0) -> Token | None:
        at = self._next + ahead
        return self._words[at] if at < len(self._words) else None

    def unexpected(self) -> TemplateFault:
        word = self.peek()
        return TemplateFault(
            f"line {self._line}: unexpected {word.text!r}" if word else f"line {self._line}: too short"
        )

    def pipeline(self, depth: int) -> Pipeline:
        if depth > DEPTH_MAX:
            raise TemplateFault(f"line {self._line}: parentheses are nested more than {DEPTH_MAX} levels deep")
        variables, is_declaration = self._variables()
        commands = [self._command(depth)]
        while self._takes("|"):
            commands.append(self._command(depth))
        return Pipeline(tuple(commands), variables, is_declaration)

    def _variables(self) -> tuple[tuple[str, ...], bool]:
        names, ahead = [], 0
        while (word := self.peek(ahead)) is not None and word.kind == "variable":
            names.append(word.text)
            sign = self.peek(ahead + 1)
            if sign is not None and sign.text in (":=", "="):
                self._next += ahead + 2
                return tuple(names), sign.text == ":="
            if sign is None or sign.text != "," or len(names) > 1:
                break
            ahead += 2
        return (), False

    def _command(self, depth: int) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        while (word := self.peek()) is not None and word.text not in ("|", ")"):
            operands.append(self._operand(word, depth))
        if not operands:
            raise self.unexpected()
        if len(operands) > 1 and not isinstance(operands[0], Function):
            raise TemplateFault(f"line {self._line}: only a function takes arguments")
        return tuple(operands)

    def _operand(self, word: Token, depth: int) -> Operand:
        self._next += 1
        match word.kind:
            case "text":
                return Literal(_text(word.text, self._line))
            case "number":
                return Literal(float(word.text) if "." in word.text else int(word.text[:64]))
            case "field":
                return Chain(None, tuple(word.text[1:].split(".")))
            case "variable":
                return Chain(word.text, self._fields())
            case "name" if word.text in _CONSTANTS:
                return Literal(_CONSTANTS[word.text])
            case "name":
                return Function(word.text)
        if word.text == ".":
            return Chain(None, ())
        if word.text == "(":
            inner = self.pipeline(depth + 1)
            if not self._takes(")"):
                raise self.unexpected()
            fields = self._fields()
            return Chain(inner, fields) if fields else inner
        self._next -= 1
        raise self.unexpected()

    def _fields(self) -> tuple[str, ...]:
        word = self.peek()
        if word is None or word.kind != "field":
            return ()
        self._next += 1
        return tuple(word.text[1:].split("."))

    def _takes(self, sign: str) -> bool:
        word = self.peek()
        if word is None or word.kind != "sign" or word.text != sign:
            return False
        self._next += 1
        return True


def _text(quoted: str, line: int) -> str:
    if quoted[0] == "`":
        return quoted[1:-1]
    try:
        found: str = json.loads(quoted)
    except ValueError:
        raise TemplateFault(f"line {line}: {quoted} is not a text") from None
    return found

"""Every sentence quotes input by one function, which cuts it: a f-string with `!r` or `!a` would quote it whole."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from projections.field_checks import quoted
from tests.unit.test_tidy import ROOT, named, sources

WHOLE = {
    "projections/field_checks.py",
}


def quotes(path: Path) -> list[str]:
    """The expressions that a module's f-strings quote whole. A slice is cut, and a fixed set of words is short."""
    return [
        f"line {node.lineno}: {ast.unparse(node.value)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue) and node.conversion in (ord("r"), ord("a"))
        if not isinstance(node.value, ast.Subscript)
    ]


@pytest.mark.parametrize("path", named(sources("commands", "drivers", "deploy")))
def test_no_sentence_quotes_input_whole(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in WHOLE:
        assert quotes(path) == []


def test_what_is_shown_of_a_value_has_an_end() -> None:
    long = "x" * 1_000_000
    assert quoted(long) == f"'{'x' * 60}'... (1000000 characters)"
    assert len(quoted("\u202e" * 1_000)) < 700

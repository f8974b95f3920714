"""Every sentence quotes input with one function, which limits its length. An f-string with `!r` has no limit."""

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
    """The expressions that the f-strings of a module quote without a limit. Subscripts, such as slices, are allowed."""
    return [
        f"line {node.lineno}: {ast.unparse(node.value)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue) and node.conversion in (ord("r"), ord("a"))
        if not isinstance(node.value, ast.Subscript)
    ]


@pytest.mark.parametrize("path", named(sources("commands", "drivers", "deploy")))
def test_every_sentence_limits_quoted_input(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in WHOLE:
        assert quotes(path) == []


def test_a_quoted_value_has_a_bounded_length() -> None:
    long = "x" * 1_000_000
    assert quoted(long) == f"'{'x' * 60}'... (1000000 characters)"
    assert len(quoted("\u202e" * 1_000)) < 700

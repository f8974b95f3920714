"""Every sentence that a fold may return, read from the source of its modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import projections
from eventstore.folding.fold import Fold


def modules(folds: Iterable[Fold[Any]]) -> dict[str, list[str]]:
    """The modules of each fold, with the topics of the folds that use them."""
    found: dict[str, list[str]] = {}
    for fold in folds:
        reached, waiting = set(), [type(fold).__module__.removeprefix("projections.")]
        while waiting:
            module = waiting.pop()
            if module not in reached:
                reached.add(module)
                waiting += _imported(module)
        for module in sorted(reached):
            found.setdefault(module, []).append(fold.topic)
    return found


def sentences(module: str) -> Iterator[str]:
    """The sentences of a module, with {} for inserted values: texts of several words that begin with a field."""
    tree = _tree(module)
    not_said = {part for node in ast.walk(tree) if _is_aside(node) for part in ast.walk(node)}
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if node in not_said or node in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        else:
            text = str(node.value) if isinstance(node, ast.Constant) else ""
        if re.match(r"\w+: \w" if isinstance(node, ast.Constant) else r".*\w .*\w", text):
            yield text


def _is_aside(node: ast.AST) -> bool:
    """Docstrings and texts of assertions, which no user reads."""
    if isinstance(node, ast.Raise):
        return isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "AssertionError"
    return isinstance(node, ast.Assert | ast.Expr)


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(_tree(module)):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "projections":
            continue
        named = str(node.module).removeprefix("projections").removeprefix(".")
        if module_file(named).is_file():
            yield named
        else:
            yield from (f"{named}.{alias.name}".removeprefix(".") for alias in node.names)


def module_file(module: str) -> Path:
    return Path(projections.__path__[0]).joinpath(*module.split(".")).with_suffix(".py")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(module_file(module).read_text("utf-8"))

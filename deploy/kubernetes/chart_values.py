"""The values of the Helm chart as a table, from the comments of values.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parents[1] / "helm" / "dpuplane"

_INDENT = 2
_KEY = re.compile(r"( *)(\w+):.*")

_TOP = """# Values of the chart

Generated from `values.yaml` by `make docs`. A test fails if it is out of date.

| value | default |  |
|---|---|---|
"""


class Value(NamedTuple):
    """A documented value."""

    path: str
    default: Any
    text: str


def values() -> Iterator[Value]:
    """The values that have a comment, in the order of the file."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            comment.clear()
        elif line.lstrip().startswith("# "):
            comment.append(line.lstrip()[2:])
        elif match := _KEY.fullmatch(line):
            path = [*path[: len(match[1]) // _INDENT], match[2]]
            if comment:
                yield Value(".".join(path), _at(content, path), " ".join(comment))
                comment.clear()


def page() -> str:
    """The table as Markdown."""
    return _TOP + "".join(f"| `{path}` | `{json.dumps(default)}` | {text} |\n" for path, default, text in values())


def _at(content: Any, path: list[str]) -> Any:
    for key in path:
        content = content[key]
    return content

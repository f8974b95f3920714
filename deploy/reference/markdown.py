"""Tables in Markdown, for the reference pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Row = Sequence[object]


def table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    """A table with column heads, its cells escaped; empty if there is no row."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(heads), "|" + "---|" * len(heads), *lines]) + "\n" if lines else ""


def code(text: str) -> str:
    """A name as code; empty stays empty."""
    return f"`{text}`" if text else ""


def page(title: str, *parts: str) -> str:
    """A whole page, with a note about its source."""
    made = "Generated from the code by `make docs`. A test fails if it is out of date."
    return "\n\n".join([f"# {title}", made, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def _line(cells: Row) -> str:
    return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |"

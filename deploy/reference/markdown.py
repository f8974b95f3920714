"""Tables in Markdown, as the reference pages need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Row = Sequence[object]


def table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    """Rows under heads, a cell of each escaped; nothing if there is no row."""
    lines = [_line(row) for row in rows]
    return "\n".join([_line(heads), "|" + "---|" * len(heads), *lines]) + "\n" if lines else ""


def code(text: str) -> str:
    """A name as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def page(title: str, *parts: str) -> str:
    """A whole page, with the sentence that says where it comes from."""
    made = "Generated from the code by `make docs`; a test holds it current."
    return "\n\n".join([f"# {title}", made, *(part.strip("\n") for part in parts if part.strip())]) + "\n"


def _line(cells: Row) -> str:
    return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |"

"""Generates the reference tables beside this file from the data that the program itself reads.

`make docs` writes them; a test fails while one of them is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.reference import api, commands, events, metrics, settings

HERE = Path(__file__).parent

TABLES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "settings.md": settings.page,
    "metrics.md": metrics.page,
    "events.md": events.page,
    "api.md": api.page,
}
"""Each page, and the function that renders it."""


def stale() -> list[str]:
    """Pages that are out of date."""
    return [name for name, page in TABLES.items() if _written(HERE / name) != page()]


def write() -> None:
    """Write every page."""
    for name, page in TABLES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


def _written(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""

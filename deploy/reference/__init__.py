"""The reference tables beside this file, generated from what the program itself reads, so that they cannot tell else.

`make docs` writes them; a test fails while one of them is not what would be written.
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
"""Each page and what makes it."""


def stale() -> list[str]:
    """Pages that are not what the program would write now."""
    return [name for name, page in TABLES.items() if _written(HERE / name) != page()]


def write() -> None:
    """Write every page."""
    for name, page in TABLES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


def _written(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""

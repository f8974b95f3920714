"""Tests marked `slow` run in a lane of their own: `make slow`, or `pytest -m slow`. Other runs deselect them."""

from __future__ import annotations

import pytest
from xdist.workermanage import WorkerController

MARKER = "slow"
_deselected = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if MARKER in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker(MARKER)]
    config.stash[_deselected] = len(slow)
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the process that reports."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[MARKER] = session.config.stash.get(_deselected, 0)


def pytest_testnodedown(node: WorkerController) -> None:
    node.config.stash[_deselected] = getattr(node, "workeroutput", {}).get(MARKER, 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_deselected, 0):
        terminalreporter.write_line(f"{count} slow tests deselected: `make slow` runs them")

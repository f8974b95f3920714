"""The reference tables are complete and current."""

from __future__ import annotations

import click

from deploy.reference import HERE, TABLES, stale
from deploy.reference.commands import walk
from deploy.settings.settings import Settings
from deploy.web.metrics.catalog import CATALOG


def test_every_table_is_current() -> None:
    assert stale() == [], "run `make docs`, and commit what it writes"
    assert {path.name for path in HERE.glob("*.md")} == set(TABLES)


def test_every_command_option_setting_and_metric_is_listed() -> None:
    commands = (HERE / "commands.md").read_text()
    for path, command in walk():
        assert len(path) == 1 or f"\n{'#' * len(path)} {' '.join(path)}\n" in commands
        for option in command.params:
            assert not isinstance(option, click.Option) or f"`{option.opts[-1]}`" in commands
    settings = (HERE / "settings.md").read_text()
    assert all(f"| `{name}` |" in settings for name in Settings.model_fields)
    metrics = (HERE / "metrics.md").read_text()
    assert all(f"| `{metric.name}` |" in metrics for metric in CATALOG)

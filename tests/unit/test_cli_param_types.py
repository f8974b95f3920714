"""Values on the command line: times, durations before now, and seconds."""

from __future__ import annotations

import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deploy.cli import cli
from deploy.cli.shared.param_types import Seconds, Time, as_of, as_of_text
from deploy.reference.commands import walk

HOUR_MS = 3_600_000


@click.command()
@click.option("--since", type=Time())
@click.option("--until", callback=as_of)
@click.option("--as-of", callback=as_of_text, default="")
@click.option("--timeout", type=Seconds(0.1, 600))
def typed(since: int | None, until: str | int | None, as_of: str, timeout: float | None) -> None:
    click.echo(repr((since, until, as_of, timeout)))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("option", ["--since", "--until", "--as-of"])
def test_a_duration_means_a_time_before_now(option: str) -> None:
    before = now_ms()
    ran = CliRunner().invoke(typed, [option, "1h"])
    after = now_ms()
    (found,) = (value for value in ran.stdout.strip("()\n").split(", ") if value not in ("None", "''"))
    assert before - HOUR_MS <= int(found.strip("'")) <= after - HOUR_MS


@pytest.mark.parametrize(
    ("given", "seconds"), [("5", 5.0), ("0.5", 0.5), ("5s", 5.0), ("1m30s", 90.0), ("10m", 600.0), ("250ms", 0.25)]
)
def test_seconds_are_a_number_or_have_units(given: str, seconds: float) -> None:
    ran = CliRunner().invoke(typed, ["--timeout", given])
    assert ran.stdout == f"(None, None, '', {seconds})\n"


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("--timeout", "11m", "'11m' must be from 0.1 to 600 seconds"),
        ("--timeout", "10 minutes", "must be a number of seconds, or a duration such as 90s or 5m"),
        ("--timeout", "nan", "'nan' must be from 0.1 to 600 seconds"),
        ("--since", "yesterday", "must be a time in ISO 8601, milliseconds since the epoch, or a duration before now"),
        (
            "--until",
            "10x",
            "must be the position of a response, a time in ISO 8601, milliseconds since the epoch, or a",
        ),
        ("--as-of", "log:zones/0=one", "must have the form TOPIC/PARTITION=OFFSET"),
    ],
)
def test_other_texts_are_refused(option: str, given: str, says: str) -> None:
    ran = CliRunner().invoke(typed, [option, given])
    assert (ran.exit_code, says in ran.output) == (2, True), ran.output


def test_every_time_of_the_command_line_may_be_a_duration() -> None:
    """A new option that takes a time uses the types above, and is listed here by its own help."""
    takes_time = [
        param
        for walked in walk(cli)
        for param in walked.command.params
        if isinstance(param, click.Option) and "TIME" in (param.metavar or "").split("|")
    ]
    assert len(takes_time) > 10
    for param in takes_time:
        assert isinstance(param.type, Time) or param.callback in (as_of, as_of_text), param.opts


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["nodes", "join", "\udcff", "--zone", "z"], "NAME"),
        (["nodes", "join", "n", "--zone", "z", "--label", "k=\udcff"], "--label"),
        (["nodes", "show", "\udcff"], "NAME"),
        (["nodes", "list", "-l", "k=\udcff"], "--selector' / '-l"),
        (["cliques", "claim", "d", "c", "n", "\udcff"], "NODE..."),
    ],
)
def test_bytes_that_are_not_utf8_are_wrong_usage_of_the_named_field(words: list[str], field: str) -> None:
    ran = CliRunner().invoke(cli, [*words, "--server", "127.0.0.1:1"])
    assert ran.exit_code == 2, ran.output
    assert f"Invalid value for '{field}': " in ran.stderr
    assert "\\udcff' must be text in UTF-8" in ran.stderr


def test_a_path_may_have_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "policy-\udcff.yaml"
    file.write_text("{name: web}")
    ran = CliRunner().invoke(cli, ["policies", "apply", str(file), "--server", "127.0.0.1:1"])
    assert (ran.exit_code, "policy 1: action: must be given" in ran.stderr) == (1, True), ran.output

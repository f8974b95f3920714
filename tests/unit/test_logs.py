"""Log lines: every field is one key=value, whatever it holds."""

from __future__ import annotations

import logging
import shlex
import sys

from deploy.logs import KeyValueFormatter


def line(message: str, **extra: object) -> str:
    record = logging.makeLogRecord({"name": "eventstore.replica", "levelname": "INFO", "created": 0.0, "msg": message})
    vars(record).update(extra)
    return KeyValueFormatter().format(record)


def test_a_line_names_what_it_is_about() -> None:
    text = line("caught up", partition="zones/3", position=17)
    assert text == (
        "time=1970-01-01T00:00:00.000+00:00 level=info logger=eventstore.replica "
        'event="caught up" partition=zones/3 position=17'
    )


def test_values_cannot_forge_lines_or_fields() -> None:
    text = line('no\nlevel=error "x"', zone="a=b c", empty="", escape="\x1b[31m")
    assert "\n" not in text
    assert "\x1b" not in text
    keys = [part.split("=", 1)[0] for part in shlex.split(text)]
    assert keys == ["time", "level", "logger", "event", "zone", "empty", "escape"]


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        text = line("halted", exc_info=sys.exc_info())
    assert "ValueError: boom" in text
    assert "\n" not in text

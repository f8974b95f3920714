"""Log lines: every field is one key=value, even with a hostile value."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import shlex
import sys
from pathlib import Path

import pytest
from aiohttp import web

from deploy.telemetry.logs import JsonFormatter, KeyValueFormatter, configure_logs, is_ours, logging_here
from eventstore.log import Partition
from tests.unit.test_tidy import dotted, sources


def line(message: str, form: logging.Formatter | None = None, **extra: object) -> str:
    record = logging.makeLogRecord(
        {"name": "eventstore.replicas.replica", "levelname": "INFO", "created": 0.0, "msg": message}
    )
    vars(record).update(extra)
    return (form or KeyValueFormatter()).format(record)


def test_a_line_has_its_subject_in_fields() -> None:
    text = line("caught up", partition="zones/3", position=17)
    assert text == (
        "time=1970-01-01T00:00:00.000+00:00 level=info logger=eventstore.replicas.replica "
        'event="caught up" partition=zones/3 position=17'
    )


def test_the_logging_of_a_command_ends_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    kafka = logging.getLogger("aiokafka")
    before, kafka_before = logging.getLogger().handlers[:], kafka.level
    with logging_here("WARNING"):
        assert kafka.level == logging.CRITICAL, "lines of the Kafka client would mislead users of a command"
        logging.getLogger("eventstore.folding.partition").error("halted", extra={"partition": "zones/3"})
        logging.getLogger("eventstore.folding.partition").info("folding")
    output = capsys.readouterr().err
    assert output.endswith("level=error logger=eventstore.folding.partition event=halted partition=zones/3\n")
    assert (output.count("\n"), logging.getLogger().handlers, kafka.level) == (1, before, kafka_before)


def test_values_cannot_forge_lines_or_fields() -> None:
    text = line('no\nlevel=error "x"', zone="a=b c", empty="", escape="\x1b[31m")
    assert "\n" not in text
    assert "\x1b" not in text
    keys = [part.split("=", 1)[0] for part in shlex.split(text)]
    assert keys == ["time", "level", "logger", "event", "zone", "empty", "escape"]


@pytest.mark.parametrize(
    "hostile", ['no\nlevel=error "x"', "\x1b[2J", "\u2028\u202e", "a=b c", '","level":"error', "\ud800"]
)
def test_json_has_the_same_fields_in_one_object(hostile: str) -> None:
    text = line(hostile, JsonFormatter(), partition=Partition("zones", 3), position=17, zone=hostile)
    assert text.isprintable() and text.isascii()
    output = json.loads(text)
    assert (output["event"], output["zone"], output["partition"], output["position"]) == (
        hostile,
        hostile,
        "zones/3",
        17,
    )
    assert output["level"] == "info" and len(output) == 7


@pytest.mark.parametrize("path", sources("eventstore", "commands", "projections", "drivers", "deploy"), ids=str)
def test_values_are_never_in_the_text_of_a_line(path: Path) -> None:
    """A log shipper can index the field `partition`, but not a value inside of a sentence."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    for call in calls:
        if isinstance(call.func, ast.Attribute) and dotted(call.func).startswith("logger.") and call.args:
            assert "=%" not in ast.unparse(call.args[0]), ast.unparse(call)


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        text = line("halted", exc_info=sys.exc_info())
    assert "ValueError: boom" in text
    assert "\n" not in text


async def test_only_internal_errors_of_http_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_request: web.Request) -> web.Response:
        raise RuntimeError("boom")

    application = web.Application()
    application.router.add_get("/", fails)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = logging.getLogger("aiohttp.server")
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    configure_logs()
    try:
        for raw in (b"GET / HTTP/9.9", b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: h", b"GET /\x16 HTTP/1.1"):
            assert b" 400 " in await answered(runner, raw)
        assert not caplog.records
        assert b" 500 " in await answered(runner, b"GET / HTTP/1.1\r\nHost: h")
        assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["boom"]
    finally:
        server.removeFilter(is_ours)
        await runner.cleanup()


async def answered(runner: web.AppRunner, raw: bytes) -> bytes:
    """The status line that these bytes and an empty line get."""
    reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
    writer.write(raw + b"\r\n\r\n")
    try:
        return await reader.readline()
    finally:
        writer.close()

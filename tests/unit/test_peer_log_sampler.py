"""Log lines caused by peers: some of each peer and a bounded number of all are written; the others are counted."""

from __future__ import annotations

import ast
import logging
import sys

import pytest

from deploy.telemetry import peer_log_sampler
from deploy.telemetry.logs import configure_logs
from deploy.telemetry.peer_log_sampler import ALL_AT_ONCE, AT_ONCE, EVERY_S, PeerLogSampler, suppressed_lines
from tests.unit.test_tidy import sources


def record(peer: str | None, at_s: float = 1_000.0, name: str = "drivers.relays.relay") -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "msg": "link closed: %s", "args": ("why",), "created": at_s})
    if peer is not None:
        made.peer = peer
    return made


def test_a_peer_gets_a_few_lines_and_then_a_few_a_minute() -> None:
    lines = PeerLogSampler()
    assert sum(lines.filter(record("dpu-agent/d1")) for _ in range(10_000)) == AT_ONCE
    assert lines.suppressed == 10_000 - AT_ONCE
    later = record("dpu-agent/d1", 1_000.0 + EVERY_S)
    assert lines.filter(later)
    assert later.__dict__["suppressed"] == 10_000 - AT_ONCE
    assert not lines.filter(record("dpu-agent/d1", 1_000.0 + EVERY_S))
    assert lines.filter(record("dpu-agent/d2", 1_000.0 + EVERY_S))


def test_many_peers_together_are_bounded_too() -> None:
    lines = PeerLogSampler()
    assert sum(lines.filter(record(f"10.0.{number >> 8}.{number & 255}")) for number in range(5_000)) == ALL_AT_ONCE


def test_lines_of_the_plane_itself_are_all_written() -> None:
    lines = PeerLogSampler()
    assert all(lines.filter(record(None)) for _ in range(1_000))
    assert lines.suppressed == 0


@pytest.mark.parametrize("name", ["aiohttp.server", "asyncio", "grpc.aio._server"])
def test_lines_of_libraries_are_sampled_by_their_text(name: str) -> None:
    lines = PeerLogSampler()
    assert sum(lines.filter(record(None, name=name)) for _ in range(1_000)) == AT_ONCE


def test_peers_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_log_sampler, "PEERS_MAX", 3)
    lines = PeerLogSampler()
    for number in range(10):
        lines.filter(record(f"p{number}"))
    assert list(lines._peers) == ["p7", "p8", "p9"]


def test_the_logs_of_a_process_are_sampled_and_suppressed_lines_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure_logs()
        for _ in range(100):
            logging.getLogger("drivers.relays.relay").info("link closed: no", extra={"peer": "dpu-agent/d1"})
        assert suppressed_lines() == 100 - AT_ONCE
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert sys.stderr is not None
    assert capsys.readouterr().err.count("link closed: no") == AT_ONCE


def test_modules_with_peers_name_the_peer_in_each_line() -> None:
    """A line of these modules is caused by a peer, unless it is one of those listed."""
    ours = {"zone %s: report", "zone %s: network report", "zones frozen", "zones thawed", "connections not accepted"}
    folders = ("drivers/relays", "drivers/wire/websocket.py", "drivers/wire/bounded_listener.py", "commands/rpc")
    found = [path for path in sources("drivers", "commands") if any(each in str(path) for each in folders)]
    assert all(any(each in str(path) for path in found) for each in folders)
    for path in found:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
                text = ast.unparse(node)
                assert "'peer'" in text or any(each in text for each in ours), f"{path}: {text}"

"""Inputs that once broke a property, each with its cause: the regression tests of fuzzing."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """An input of a target, as it was found or slightly shortened."""

    target: str
    what: str
    data: bytes


FINDINGS = (
    Finding("text", "a port with thousands of digits was refused with Python's message", b"listener a:" + b"9" * 5_000),
    Finding(
        "text",
        "brackets around a part of a host were dropped, and the rest was taken for the host",
        b"brokers a:1,[::a:1",
    ),
    Finding("text", "any text before the port was taken for a host", b"listener a:1,[::1]:80"),
    Finding(
        "agent-table",
        "an agent did not start on a table whose text is not UTF-8",
        b"\x96\xa5dpu-1\xa6rack-1\x01\t\xc4\x01x\x91\x93\x94\x05\xa5al4\x83\xe6\xa3tcp\x90\xc4\x00\xc4\x00",
    ),
    Finding(
        "agent-table",
        "an agent did not start on a table with half a prefix",
        b"\x96\xa5dpu-1\xa6rack-1\x01\t\xc4\x01x\x91\x93\x94\x05\xa5allow\xa3tcp\x90\xc4\x03abc\xc4\x00",
    ),
    Finding("saved-rows", "a replica did not start on a row whose text is not UTF-8", b"\0\0\0\x04\xdc\0\x01\xa1\xff"),
    Finding(
        "backup-records",
        "invalid headers ended a restore with msgspec's error",
        bytes(16) + b"\0\0\0\0\0\0\0\0\0\0\0\x01\xc3",
    ),
    Finding("backup-manifest", "a deeply nested manifest raised RecursionError", b'{"x":' + b"[" * 5_000),
    Finding(
        "backup-manifest",
        "a manifest could name an invalid partition, and thus any file of the machine",
        b'{"format":1,"log_id":"l","generation":1,"parent":"","partition_count":1,"made_at_ms":0,'
        b'"partitions":{"../x/y":{"begin":0,"end":0,"records":0,"bytes":0,"running":"","last_ms":0}}}',
    ),
    Finding("settings", "an invalid date raised ValueError", b"\n\ndata: 2001-23-00\n"),
    Finding("settings", "a value that is not UTF-8 raised UnicodeEncodeError", b"DATA=/x\nLISTEN=\xff.example:1\n\n"),
    Finding("settings", "a host could hold control characters", b"DATA=/x\nLISTEN=12\x17.0.0.1:1\n\n"),
    Finding("settings", "a number with thousands of digits raised ValueError", b"\n\nseed: " + b"1" * 5_000),
    Finding("settings", "deeply nested YAML raised RecursionError", b"\n\n" + b"[" * 1_000),
    Finding("settings", "a tag that does not fit its value raised AttributeError", b"\n\ndata: !!timestamp x\n"),
    Finding("settings", "a tag that does not fit its value raised KeyError", b"\n\ninsecure: !!bool x\n"),
    Finding(
        "policies", "a field's name was printed without escapes", b'[{"name": "a", "action": "drop", "por\\ts": 1}]'
    ),
    Finding(
        "policies",
        "a port in non-ASCII digits was refused with Python's message",
        "name: a\naction: allow\nports: ['²']".encode(),
    ),
)

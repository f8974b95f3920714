"""Texts from callers, browsers, flags and files. Each text is refused with one sentence, or parsed to a value that can
be written and parsed again.

The first word of an input selects the parser, which keeps the corpus readable.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, ip_address

import msgspec

from commands.rpc.middleware import principal_of
from deploy.composition.topics import TOPICS
from deploy.operations.export.schema_registry import RegistryError, SchemaRegistry
from deploy.settings.addresses import parse_address, parse_addresses
from deploy.web.page.log import parse_cursor
from deploy.web.page.requests import number
from eventstore.as_of import format_time, parse_as_of
from eventstore.avro.released import released
from eventstore.errors import LogMismatch, PermanentError
from eventstore.ids import issued_at_ms
from eventstore.position import from_token, to_token
from eventstore.replicas.lineage import lineage_of
from projections import field_checks
from projections.fleet.withdrawals.principals import Principal, parse_uri, uri_of
from projections.pages import page
from projections.zones.dpus.install_interfaces import check_bmc_address
from schemas.api.metadata import PRINCIPAL_KEY
from tests.fuzz.target import Target, check_refusal
from tests.support.memory_log import Contents, MemoryLog
from tests.support.toy_records import LOG_ID, created

PARTITIONS = 12
LOG = MemoryLog(Contents(PARTITIONS), lambda: 0)
KEYS = {0: ["a", "b/c", "z"], 3: ["a", "é"], 11: ["zz"]}
REGISTRY = SchemaRegistry(released())


def _position(text: str) -> None:
    found = from_token(text, LOG_ID)
    assert from_token(to_token(found), LOG_ID) == found
    assert len(found.offsets) <= len(text)


def _moment(text: str) -> None:
    found = parse_as_of(text)
    if isinstance(found, int):
        check_refusal(format_time(found))


def _page(text: str) -> None:
    found = page(sorted(KEYS), KEYS.__getitem__, 2, text)
    every = [(partition, key) for partition in sorted(KEYS) for key in KEYS[partition]]
    assert found.keys == [each for each in every if each in found.keys]
    assert len(found.keys) <= 2
    if found.next_token:
        page(sorted(KEYS), KEYS.__getitem__, 2, found.next_token)


def _cursor(text: str) -> None:
    found = parse_cursor(text, LOG)
    assert {*found} <= {each for topic in TOPICS.folded for each in TOPICS.partitions(topic, PARTITIONS)}
    written = ",".join(f"{partition}={offset}" for partition, offset in found.items())
    assert parse_cursor(written, LOG) == found


def _number(text: str) -> None:
    assert 0 <= number("n", text, most=500) <= 500


def _principal(text: str) -> None:
    found = parse_uri(text, "example.org")
    if isinstance(found, str):
        raise PermanentError(found)
    assert uri_of("example.org", found) == text
    assert isinstance(found, Principal)


def _claimed(text: str) -> None:
    assert principal_of([(PRINCIPAL_KEY, text)], lambda: "ipv4:127.0.0.1:1") == f"?{text}"


def _listener(text: str) -> None:
    try:
        found = parse_address(text)
    except ValueError as error:
        raise _own_message(error, "HOST:PORT") from None
    assert 0 <= found.port <= 65_535 and found.host
    assert parse_address(str(found)) == found
    assert found.is_loopback in (True, False)


def _brokers(text: str) -> None:
    try:
        found = parse_addresses(text)
    except ValueError as error:
        raise _own_message(error, "HOST:PORT") from None
    assert parse_addresses(",".join(map(str, found))) == found


def _own_message(error: ValueError, words: str) -> PermanentError:
    assert words in str(error), f"the message comes from Python, not from our code: {error}"
    return PermanentError(str(error))


def _address(text: str) -> None:
    found = field_checks.parse_address("address", text)
    check = field_checks.check_address4 if isinstance(found, IPv4Address) else field_checks.check_address6
    assert check("address", int(found)) is None
    assert ip_address(str(found)) == found


def _name(text: str) -> None:
    checks = (
        field_checks.check_name,
        field_checks.check_zone,
        field_checks.check_clique,
        field_checks.check_label_key,
        field_checks.check_text,
    )
    faults = [check("field", text) for check in (*checks, field_checks.check_uid, check_bmc_address)]
    for fault in filter(None, faults):
        check_refusal(fault)
    if all(faults):
        raise PermanentError("field: every rule refuses it")


def _id(text: str) -> None:
    assert 0 <= issued_at_ms(text) < 1 << 48


def _version(text: str) -> None:
    try:
        assert REGISTRY.version("dpuplane.NodesJoined", text).version >= 1
    except RegistryError as error:
        # The message is that of Confluent's registry, which quotes the whole text.
        assert len(str(error)) <= len(text) + 200
        raise PermanentError("version") from None


def _parent(text: str) -> None:
    try:
        found = lineage_of(msgspec.structs.replace(created(), parent=text))
    except LogMismatch as error:
        raise PermanentError(str(error)) from None
    for generation, fork in found.forks:
        assert isinstance(generation, int) and fork.log_id in text


PARSERS: dict[bytes, Callable[[str], None]] = {
    b"position": _position,
    b"moment": _moment,
    b"page": _page,
    b"cursor": _cursor,
    b"number": _number,
    b"principal": _principal,
    b"claimed": _claimed,
    b"listener": _listener,
    b"brokers": _brokers,
    b"address": _address,
    b"name": _name,
    b"id": _id,
    b"version": _version,
    b"parent": _parent,
}


def text(data: bytes) -> bool:
    """Accepted or refused by the parser that the first word names. Bytes that are not UTF-8 arrive as surrogates, as in
    argv.
    """
    word, _, rest = data.partition(b" ")
    if word not in PARSERS:
        return False
    try:
        PARSERS[word](rest.decode(errors="surrogateescape"))
    except PermanentError as error:
        check_refusal(error)
        return False
    return True


TARGETS = (Target("text", text, max_bytes=8_192),)

"""Retries: each server in turn, pauses between rounds, a budget, and the failure that is reported."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from commands.client.errors import CallFailed, NotFound, PositionExpired, Rejected, StillFolding, Unanswered, failure
from commands.client.retries import BUDGET_MAX, PAUSE_S_MAX, RETRY_DELAY_S_MAX, Retries
from commands.rpc.error_details import metadata_of
from eventstore.reasons import Fault, Reason
from schemas.api.metadata import ANSWERED_KEY, ERROR_DOMAIN, STATUS_DETAILS_KEY

UNAVAILABLE, CODES = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode
NEVER_SENT = "failed to connect to all addresses; last error: refused"


def error(
    code: grpc.StatusCode, details: str = "", *, from_plane: bool = False, server: str = "a", more: Any = ()
) -> CallFailed:
    trailing = (*more, (ANSWERED_KEY, "yes")) if from_plane else more

    class Raised(grpc.RpcError):
        code: Any
        details: Any
        trailing_metadata: Any

    raised = Raised()
    raised.code, raised.details, raised.trailing_metadata = (lambda: code), (lambda: details), (lambda: trailing)
    return failure(raised, server)


@pytest.mark.parametrize(
    ("code", "details", "kind", "again"),
    [
        (CODES.NOT_FOUND, "zone: 'z'", NotFound, False),
        (CODES.INVALID_ARGUMENT, "zone: ''", Rejected, False),
        (CODES.OUT_OF_RANGE, "position", PositionExpired, False),
        (CODES.RESOURCE_EXHAUSTED, "principal", Rejected, False),
        (CODES.PERMISSION_DENIED, "", Rejected, False),
        (CODES.UNAVAILABLE, "no leader", Unanswered, True),
        (CODES.DEADLINE_EXCEEDED, "", Unanswered, True),
        (CODES.UNKNOWN, "", Unanswered, False),
        (CODES.INTERNAL, "", Unanswered, False),
    ],
)
def test_an_error_status_is_one_kind_of_failure(
    code: grpc.StatusCode, details: str, kind: type[CallFailed], *, again: bool
) -> None:
    found = error(code, details)
    assert (type(found), found.is_retriable, found.details, found.server) == (kind, again, details, "a")


def test_the_code_in_the_details_shows_that_a_server_still_folds() -> None:
    fault = Fault("as_of: half of the log is folded", Reason.STILL_FOLDING)
    found = error(CODES.UNAVAILABLE, fault, more=(metadata_of(CODES.UNAVAILABLE, fault),))
    assert (type(found), found.is_retriable, found.reason) == (StillFolding, False, None), "no server of the plane"


def test_foreign_details_and_codes_of_later_versions_are_ignored() -> None:
    for reason, domain in (("ZONE_NOT_FOUND", "example.org"), ("NEW", ERROR_DOMAIN)):
        status = Status()
        status.details.add().Pack(ErrorInfo(reason=reason, domain=domain))
        found = error(CODES.NOT_FOUND, from_plane=True, more=((STATUS_DETAILS_KEY, status.SerializeToString()),))
        assert found.reason is Reason.UNAVAILABLE
    assert error(CODES.NOT_FOUND, more=((STATUS_DETAILS_KEY, b"\xff"),)).fields == {}


def test_only_a_request_without_a_connection_was_not_sent() -> None:
    assert not error(UNAVAILABLE, NEVER_SENT).was_sent
    assert not error(UNAVAILABLE, "DNS resolution failed for a").was_sent
    assert error(UNAVAILABLE, NEVER_SENT, from_plane=True).was_sent
    assert error(UNAVAILABLE, "connection reset").was_sent
    assert error(CODES.DEADLINE_EXCEEDED, NEVER_SENT).was_sent


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 9))
def test_every_server_is_tried_in_each_round_with_pauses_between_rounds(rounds: int, count: int, seed: int) -> None:
    servers = [f"s{number}" for number in range(count)]
    tried = list(Retries(servers, rounds=rounds, rng=random.Random(seed)).begin())
    assert [server for server, _ in tried] == servers * rounds
    assert all(0 <= pause_s <= PAUSE_S_MAX for _, pause_s in tried)
    assert all(pause_s == 0 for number, (_, pause_s) in enumerate(tried) if number < count or number % count)


def test_the_server_that_responded_is_tried_first() -> None:
    retries = Retries(["a", "b", "c"], rounds=1, rng=random.Random(1))
    retries.succeeded("c")
    assert [server for server, _ in retries.begin()] == ["c", "a", "b"]


def test_a_budget_bounds_the_share_of_retries() -> None:
    retries = Retries(["a"], rounds=2, rng=random.Random(1))
    attempts = [len(list(retries.begin())) for _ in range(200)]
    assert attempts == [2] * int(BUDGET_MAX) + [1] * (200 - int(BUDGET_MAX))
    for _ in range(20):
        retries.succeeded("a")
    assert sorted(len(list(retries.begin())) for _ in range(4))[:2] == [1, 1], "20 calls pay for two retries"


@pytest.mark.parametrize("asked_s, waited_s", [(0, 0.0), (7, 7.0), (-7, 0.0), (86_400, RETRY_DELAY_S_MAX)])
def test_the_next_round_waits_as_long_as_the_plane_asks(asked_s: int, waited_s: float) -> None:
    status = Status()
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=asked_s)))
    more = ((STATUS_DETAILS_KEY, status.SerializeToString()),)
    attempts = Retries(["a", "b"], rounds=2, rng=random.Random(1)).begin()
    pauses_s = []
    for server, pause_s in attempts:
        pauses_s.append(pause_s)
        attempts.failed(error(UNAVAILABLE, "loading", from_plane=True, server=server, more=more))
    assert pauses_s[2] >= waited_s and pauses_s[2] <= max(waited_s, PAUSE_S_MAX)
    assert [pauses_s[0], pauses_s[1], pauses_s[3]] == [0, 0, 0]


def test_a_permanent_failure_is_raised_at_once() -> None:
    attempts = Retries(["a", "b"], rounds=1, rng=random.Random(1)).begin()
    with pytest.raises(Rejected):
        attempts.failed(error(CODES.INVALID_ARGUMENT, "zone"))


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([error(UNAVAILABLE, NEVER_SENT, server="a"), error(UNAVAILABLE, "reset", server="b")], "b"),
        ([error(UNAVAILABLE, "reset", server="a"), error(UNAVAILABLE, "late", from_plane=True, server="b")], "b"),
        ([error(UNAVAILABLE, NEVER_SENT, server="a"), error(UNAVAILABLE, NEVER_SENT, server="b")], "b"),
        ([error(UNAVAILABLE, "reset", server="a"), error(UNAVAILABLE, NEVER_SENT, server="b")], "a"),
    ],
)
def test_the_most_specific_failure_is_reported(failures: list[CallFailed], told: str) -> None:
    attempts = Retries(["a", "b"], rounds=1, rng=random.Random(1)).begin()
    for found in failures:
        attempts.failed(found)
    assert attempts.last_failure().server == told

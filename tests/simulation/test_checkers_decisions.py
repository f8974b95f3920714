"""The checkers of the decisions topic, on topics that the test itself has written."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from eventstore.log import DECISIONS, Partition, Record
from tests.simulation.checkers.decisions import IN_FLIGHT_MAX, check_complete, check_decided, check_decision_order
from tests.support.written_run import ZONES_0, WrittenRun

TOPIC = Partition(DECISIONS, 0)
COUNT = IN_FLIGHT_MAX + 20


@pytest.fixture(scope="module")
def keys() -> dict[str, bytes]:
    """The decisions about a log of joins, by key."""
    return joins().evidence().decided


def joins() -> WrittenRun:
    log = WrittenRun()
    for number in range(COUNT):
        log.write(ZONES_0, log.join(f"n{number}"))
    return log


def writes(log: WrittenRun, keys: dict[str, bytes], offsets: Iterable[int]) -> WrittenRun:
    """Write the decisions about these records of zones/0, in this order."""
    found = [f"zones/0/{offset}" for offset in offsets]
    log.records[TOPIC] = [Record(place, log.now_ms, key.encode(), keys[key]) for place, key in enumerate(found)]
    return log


def test_a_complete_topic_in_order_has_no_faults(keys: dict[str, bytes]) -> None:
    run = writes(joins(), keys, [1, 1, *range(1, COUNT + 1), 7]).evidence()
    assert [*check_decided(run), *check_decision_order(run), *check_complete(run)] == []


def test_a_log_without_the_topic_has_no_faults() -> None:
    assert list(check_complete(joins().evidence())) == []


def test_a_wrong_decision_is_reported(keys: dict[str, bytes]) -> None:
    log = writes(joins(), keys, range(1, COUNT + 1))
    log.records[TOPIC][3] = log.records[TOPIC][3]._replace(value=b"other")
    log.records[TOPIC][4] = log.records[TOPIC][4]._replace(key=b"zones/0/999999")
    found = list(check_decided(log.evidence()))
    assert [fault.split(" has another")[0] for fault in found] == ["decisions/0@3", "decisions/0@4"]


def test_a_missing_decision_is_reported(keys: dict[str, bytes]) -> None:
    run = writes(joins(), keys, [offset for offset in range(1, COUNT + 1) if offset != 9]).evidence()
    assert list(check_complete(run)) == ["no decision about zones/0/9 was written"]


@pytest.mark.parametrize(("newest", "faults"), [(IN_FLIGHT_MAX, 0), (IN_FLIGHT_MAX + 1, 1)])
def test_a_decision_may_only_be_overtaken_within_its_batch(newest: int, faults: int, keys: dict[str, bytes]) -> None:
    run = writes(joins(), keys, [*range(2, IN_FLIGHT_MAX), newest, 1]).evidence()
    assert len(list(check_decision_order(run))) == faults

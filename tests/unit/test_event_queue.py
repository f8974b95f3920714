"""Kubernetes Events before their write: one entry per Event, few writes per object, and every bound holds."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from projections.kubernetes.event_queue import (
    ATTEMPTS,
    BURST,
    MAX_KNOWN,
    MAX_OBJECTS,
    MAX_PENDING,
    REFILL_MS,
    EventQueue,
    Tally,
)
from projections.kubernetes.object_events import MAX_MESSAGE, ObjectEvent, Regarding, document

NOW_MS = 1_790_000_000_000


def event(uid: str = "u1", code: str = "", name: str = "n1", namespace: str = "", message: str = "no") -> ObjectEvent:
    return ObjectEvent(Regarding("v1", "Node", name, uid, namespace), "NodeRefused", message, code=code)


def taken(queue: EventQueue) -> list[Tally]:
    """The waiting Events, each of them written."""
    found = []
    while (tally := queue.take()) is not None:
        queue.wrote(tally, tally.count)
        found.append(tally)
    return found


# -- names and documents


@given(st.text(), st.text(), st.text(), st.text())
def test_the_name_of_an_event_depends_on_object_reason_and_code_and_on_nothing_else(
    uid: str, code: str, other_uid: str, other_code: str
) -> None:
    one, other = event(uid, code), event(other_uid, other_code)
    assert (one.name == other.name) == ((uid, code) == (other_uid, other_code))
    assert one._replace(is_warning=False, message="at 1790000000001").name == one.name
    assert one._replace(reason="Other").name != one.name


@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?){0,4}", fullmatch=True))
def test_the_name_of_an_event_is_a_subdomain_of_at_most_253_characters(name: str) -> None:
    made = event(name=name[:253].rstrip("-."))
    assert len(made.name) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made.name)


def test_an_event_is_in_the_namespace_of_its_object_or_in_the_default_one() -> None:
    made = document(event(message="x" * 5_000), count=2, first_ms=NOW_MS, last_ms=NOW_MS + 61_000)
    assert made["metadata"]["namespace"] == "default" and "namespace" not in made["involvedObject"]
    assert (made["count"], made["type"], len(made["message"])) == (2, "Warning", MAX_MESSAGE)
    assert (made["firstTimestamp"], made["lastTimestamp"]) == ("2026-09-21T14:13:20Z", "2026-09-21T14:14:21Z")
    made = document(event(namespace="pods"), count=1, first_ms=NOW_MS, last_ms=NOW_MS)
    assert made["metadata"]["namespace"] == made["involvedObject"]["namespace"] == "pods"


# -- counts and limits


def test_occurrences_of_a_waiting_event_are_one_write() -> None:
    queue = EventQueue()
    for number in range(1_000):
        queue.put(event(), NOW_MS + number)
    (tally,) = taken(queue)
    assert (tally.count, tally.first_ms, tally.last_ms) == (1_000, NOW_MS, NOW_MS + 999)
    assert (queue.counts.merged, queue.counts.limited) == (999, 0)


def test_a_repetition_has_the_newest_message() -> None:
    queue = EventQueue()
    for number in range(3):
        queue.put(event(message=f"created at {number}"), NOW_MS)
    (tally,) = taken(queue)
    assert (tally.count, tally.event.message) == (3, "created at 2")


def test_an_object_gets_a_burst_and_then_one_write_per_refill() -> None:
    queue, writes = EventQueue(), 0
    for _ in range(1_000):
        queue.put(event(), NOW_MS)
        writes += len(taken(queue))
    assert (writes, queue.counts.limited) == (BURST, 1_000 - BURST)
    queue.put(event(), NOW_MS + REFILL_MS - 1)
    assert not taken(queue)
    queue.put(event(), NOW_MS + REFILL_MS)
    (tally,) = taken(queue)
    assert tally.count == 1_002, "what the limit stopped counts all the same"
    queue.put(event("u2"), NOW_MS)
    assert len(taken(queue)) == 1, "each object has a limit of its own"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("aab"),
            st.integers(0, 40),
            st.sampled_from((0, 0, 0, 0, 1, REFILL_MS // 3, REFILL_MS)),
            st.sampled_from((True, True, True, False)),
        ),
        min_size=40,
        max_size=200,
    )
)
def test_no_sequence_exceeds_the_limit_and_no_occurrence_is_lost(steps: list[tuple[str, int, int, bool]]) -> None:
    queue, now_ms = EventQueue(), NOW_MS
    waits, occurrences, written = Counter[str](), Counter[str](), dict[str, int]()
    for uid, message, passed_ms, is_written in steps:
        now_ms += passed_ms
        made, before = event(uid, str(message)), queue.pending
        queue.put(made, now_ms)
        occurrences[made.name] += 1
        waits[uid] += queue.pending - before
        assert waits[uid] <= BURST + (now_ms - NOW_MS) // REFILL_MS
        for tally in taken(queue) if is_written else ():
            assert tally.count == occurrences[tally.event.name] > written.get(tally.event.name, 0)
            written[tally.event.name] = tally.count
    assert queue.counts.dropped == 0
    assert queue.counts.merged + queue.counts.limited + sum(waits.values()) == len(steps)


@given(st.lists(st.integers(-10 * REFILL_MS, 10 * REFILL_MS), max_size=200))
def test_a_clock_that_goes_back_gives_no_more_writes(jumps: list[int]) -> None:
    queue, latest_ms, writes = EventQueue(), NOW_MS, 0
    for number, jump in enumerate([0, *jumps]):
        latest_ms = max(latest_ms, NOW_MS + jump)
        queue.put(event(code=str(number)), NOW_MS + jump)
        writes += len(taken(queue))
    assert writes <= BURST + (latest_ms - NOW_MS) // REFILL_MS


def test_every_bound_holds() -> None:
    queue = EventQueue()
    for number in range(MAX_PENDING + 10):
        queue.put(event(f"u{number}"), NOW_MS)
    assert (queue.pending, queue.counts.dropped) == (MAX_PENDING, 10)
    for number in range(3 * MAX_KNOWN):
        queue.put(event(f"v{number}"), NOW_MS)
        if number >= MAX_PENDING:
            tally = queue.take()
            assert tally is not None
            queue.wrote(tally, tally.count)
        assert queue.pending <= MAX_PENDING and queue.known <= MAX_KNOWN
    for _ in range(BURST):
        queue.put(event("v0"), NOW_MS)
    assert MAX_OBJECTS <= MAX_PENDING < MAX_KNOWN


# -- outcomes


def test_an_event_of_an_earlier_run_is_continued_and_not_repeated() -> None:
    queue = EventQueue()
    queue.put(event(), NOW_MS)
    tally = queue.take()
    assert tally is not None
    queue.found(tally, 7)
    assert queue.take() is None, "the restart repeats nothing"
    queue.put(event(), NOW_MS)
    assert [each.count for each in taken(queue)] == [8]


def test_occurrences_before_the_event_was_found_are_added_to_it() -> None:
    queue = EventQueue()
    for _ in range(3):
        queue.put(event(), NOW_MS)
    tally = queue.take()
    assert tally is not None
    queue.found(tally, 7)
    assert [each.count for each in taken(queue)] == [9]


def test_an_own_creation_without_an_answer_is_not_counted_twice() -> None:
    queue = EventQueue()
    for _ in range(3):
        queue.put(event(), NOW_MS)
    tally = queue.take()
    assert tally is not None
    tally.tried = 3
    assert queue.retry(tally, is_counted=False)
    assert queue.take() is tally
    queue.found(tally, 3)
    assert (queue.take(), tally.count) == (None, 3)


def test_an_expired_event_is_created_again_with_its_count() -> None:
    queue = EventQueue()
    queue.put(event(), NOW_MS)
    (tally,) = taken(queue)
    queue.put(event(), NOW_MS)
    assert queue.take() is tally and tally.written == 1
    queue.vanished(tally)
    assert queue.take() is tally and (tally.count, tally.written) == (2, 0)


def test_an_event_is_given_up_after_its_attempts_and_begins_anew() -> None:
    queue = EventQueue()
    queue.put(event(), NOW_MS)
    for number in range(ATTEMPTS):
        tally = queue.take()
        assert tally is not None and queue.retry(tally, is_counted=True) == (number < ATTEMPTS - 1)
    assert (queue.take(), queue.known) == (None, 0)
    queue.put(event(), NOW_MS)
    assert [each.count for each in taken(queue)] == [1]

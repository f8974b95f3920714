"""Limits per principal: a caller in a loop is refused, others are not, and time restores its budget."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from commands.rpc.limits import Admission, LimitExceeded, Limits

pytestmark = pytest.mark.virtual_clock


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def admitted(admission: Admission, principal: str, tries: int) -> int:
    done = 0
    for _ in range(tries):
        try:
            with admission.admit(principal):
                done += 1
        except LimitExceeded:
            pass
    return done


def test_a_bucket_holds_a_burst_and_fills_with_time() -> None:
    clock = Clock()
    admission = Admission(Limits(rate_per_s=10.0, burst=20.0), clock)
    assert admitted(admission, "greedy", 50) == 20
    assert admitted(admission, "modest", 5) == 5
    clock.now_s += 1.0
    assert admitted(admission, "greedy", 50) == 10
    clock.now_s += 3_600.0
    assert admitted(admission, "greedy", 50) == 20
    assert admission.refused == 30 + 40 + 30


def test_concurrent_calls_are_limited_until_they_end() -> None:
    admission = Admission(Limits(concurrent_calls=2), Clock())
    with ExitStack() as calls:
        for _ in range(2):
            calls.enter_context(admission.admit("greedy"))
        with pytest.raises(LimitExceeded, match=r"'greedy': 2 calls"):
            calls.enter_context(admission.admit("greedy"))
        calls.enter_context(admission.admit("modest"))
    with admission.admit("greedy"):
        pass


def test_a_failed_call_frees_its_slot() -> None:
    admission = Admission(Limits(concurrent_calls=1), Clock())
    for _ in range(3):
        with pytest.raises(ValueError, match="inside"), admission.admit("one"):
            raise ValueError("inside")


async def test_messages_of_a_stream_wait_for_tokens() -> None:
    now_s = asyncio.get_running_loop().time
    admission, began_s = Admission(Limits(rate_per_s=1.0, burst=3.0), now_s), now_s()
    waited_s = []
    with admission.admit("one"):
        for _ in range(5):
            await admission.wait_for_token("one")
            waited_s.append(now_s() - began_s)
        with pytest.raises(LimitExceeded, match="calls per second"):
            admission.admit("one")
    assert waited_s == pytest.approx([0.0, 0.0, 1.0, 2.0, 3.0])
    assert admission.refused == 1, "only the call was refused, and no message"


def test_the_least_recently_seen_principal_is_forgotten() -> None:
    clock = Clock()
    admission = Admission(Limits(rate_per_s=0.0, burst=1.0, principals_max=2), clock)
    assert [admitted(admission, name, 1) for name in ("a", "b", "c")] == [1, 1, 1]
    assert admitted(admission, "b", 1) == 0, "principal b is still in memory"
    assert admitted(admission, "a", 1) == 1, "principal a was forgotten and has a new budget"


def test_a_broken_stream_frees_its_slot() -> None:
    admission = Admission(Limits(concurrent_streams=1), Clock())
    for _ in range(3):
        with pytest.raises(ConnectionError), admission.admit_stream("p"):
            with pytest.raises(LimitExceeded, match="read one to its end first"), admission.admit_stream("p"):
                raise AssertionError("a second stream was admitted")
            raise ConnectionError("the reader is gone")
    assert admission.under_way == 0

"""A single caller never waits; batches of concurrent callers linger for as long as there are several."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from eventstore.linger import Linger
from tests.support.virtual_loop import VirtualLoop, run_virtual


def linger_after(*batches: tuple[int, float]) -> Linger:
    """A linger that has observed batches of these sizes, at these times in seconds."""
    linger = Linger()
    for size, now_s in batches:
        linger.observe(size, now_s)
    return linger


def test_a_single_caller_does_not_wait() -> None:
    assert Linger().idle_s == 0.0
    assert linger_after((1, 1.0), (1, 1.1)).idle_s == 0.0


def test_the_idle_wait_grows_with_the_batch_size_up_to_a_limit() -> None:
    waits_s = [linger_after((size, 1.0)).idle_s for size in (2, 10, 20, 200, 500)]
    assert 0.0 < waits_s[0] < waits_s[1] < waits_s[2] <= waits_s[3] == waits_s[4] <= 0.005


def test_small_batches_in_between_do_not_shorten_the_wait() -> None:
    """A small batch may result from a sync that came too early, so it must not make the next sync early as well."""
    assert linger_after((200, 1.0), (2, 1.1), (3, 1.2), (1, 1.9)).idle_s == linger_after((200, 1.0)).idle_s


def test_a_batch_size_is_forgotten_after_a_second() -> None:
    assert linger_after((200, 1.0), (1, 2.5)).idle_s == 0.0
    assert linger_after((200, 1.0), (100, 1.9), (4, 2.1)).idle_s == linger_after((4, 2.1)).idle_s


def test_the_total_wait_grows_with_the_batch_size_up_to_a_limit() -> None:
    waits_s = [linger_after((size, 1.0)).max_s for size in (1, 18, 100, 200, 500)]
    assert 0.0 < waits_s[0] == waits_s[1] < waits_s[2] < waits_s[3] <= waits_s[4] <= 0.1


def test_a_batch_of_the_expected_size_is_complete() -> None:
    assert Linger().enough == 1
    assert linger_after((200, 1.0), (200, 1.1)).enough == linger_after((200, 1.0), (3, 1.1)).enough == 200


def test_the_expected_size_doubles_while_batches_grow() -> None:
    """Callers of one batch return together, so a batch that closes at their number would never include new callers."""
    assert [linger_after((1, 0.9), (size, 1.0)).enough for size in (2, 50)] == [4, 100]
    assert linger_after((50, 1.0), (80, 1.1)).enough == 160
    assert linger_after((50, 1.0), (80, 1.1), (80, 1.2)).enough == 80
    assert linger_after((80, 1.0), (50, 2.1)).enough == 50, "an older, larger size is forgotten"


async def lingered(linger: Linger, joins_s: list[float], waiting: int = 1) -> float:
    """The seconds that a batch waits while appends join at these times. An append at a negative time fills it."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number, join_s in enumerate(joins_s, waiting + 1):
        loop.call_at(began_s + abs(join_s), partial(linger.join, number, is_full=join_s < 0))
    await linger.wait(waiting, is_full=False)
    return loop.time() - began_s


def test_a_batch_waits_until_no_append_joins_any_more() -> None:
    crowd = linger_after((200, 1.0), (200, 1.1))
    idle_s, max_s = crowd.idle_s, crowd.max_s
    assert run_virtual(lingered(linger_after((1, 1.0)), [])) == 0.0
    assert run_virtual(lingered(crowd, [])) == pytest.approx(idle_s)
    assert run_virtual(lingered(crowd, [0.001, 0.003])) == pytest.approx(0.003 + idle_s)
    assert run_virtual(lingered(crowd, [0.001 * step for step in range(1, 100)])) == pytest.approx(max_s)


def test_a_batch_that_is_complete_or_full_does_not_wait() -> None:
    crowd = linger_after((200, 1.0), (200, 1.1))
    assert run_virtual(lingered(crowd, [], waiting=200)) == 0.0
    assert run_virtual(lingered(crowd, [0.001, 0.002], waiting=198)) == pytest.approx(0.002)
    assert run_virtual(lingered(crowd, [0.001, -0.002])) == pytest.approx(0.002)


def test_a_batch_does_not_wait_after_the_loop_was_blocked_for_the_whole_wait() -> None:
    """Any two readings of the clock may lie far apart, because other processes use the CPU between them."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, BlockedLoop)
        loop.is_blocked = True
        await linger_after((200, 1.0)).wait(1, is_full=False)

    with asyncio.Runner(loop_factory=BlockedLoop) as runner:
        runner.run(scenario())


class BlockedLoop(VirtualLoop):
    """A loop on which each reading of the clock takes the whole wait of a batch while `is_blocked`."""

    is_blocked = False

    def time(self) -> float:
        if self.is_blocked:
            self.take(0.1)
        return super().time()


def test_a_batch_can_be_waited_for_again_after_the_waiter_was_cancelled() -> None:
    async def twice() -> float:
        crowd = linger_after((200, 1.0))
        waiter = asyncio.ensure_future(crowd.wait(1, is_full=False))
        await asyncio.sleep(0.001)
        waiter.cancel()
        await asyncio.wait({waiter})
        crowd.join(2, is_full=True)
        return await lingered(crowd, [])

    assert run_virtual(twice()) == pytest.approx(linger_after((200, 1.0)).idle_s)

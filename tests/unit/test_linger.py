"""A single caller never waits; batches of concurrent callers linger for as long as there are several."""

from __future__ import annotations

from eventstore.linger import Linger


def linger_after(*batches: tuple[int, float]) -> Linger:
    """After batches of these sizes, at these seconds."""
    linger = Linger()
    for size, now_s in batches:
        linger.observe(size, now_s)
    return linger


def test_who_appends_alone_does_not_wait() -> None:
    assert Linger().idle_s == 0.0
    assert linger_after((1, 1.0), (1, 1.1)).idle_s == 0.0


def test_the_larger_a_crowd_the_longer_each_is_waited_for_up_to_a_bound() -> None:
    waits_s = [linger_after((size, 1.0)).idle_s for size in (2, 5, 20, 200, 500)]
    assert 0.0 < waits_s[0] < waits_s[1] < waits_s[2] <= waits_s[3] == waits_s[4] <= 0.005


def test_small_batches_in_between_do_not_end_a_crowd() -> None:
    """They are what it looks like when a sync was too early, and must not make the next one early as well."""
    assert linger_after((200, 1.0), (2, 1.1), (3, 1.2), (1, 1.9)).idle_s == linger_after((200, 1.0)).idle_s


def test_a_crowd_that_has_gone_is_forgotten_after_a_second() -> None:
    assert linger_after((200, 1.0), (1, 2.5)).idle_s == 0.0
    assert linger_after((200, 1.0), (100, 1.9), (4, 2.1)).idle_s == linger_after((4, 2.1)).idle_s


def test_a_crowd_is_gathered_for_as_long_as_it_takes_to_serve_it_up_to_a_bound() -> None:
    waits_s = [linger_after((size, 1.0)).max_s for size in (1, 18, 100, 200, 500)]
    assert 0.0 < waits_s[0] == waits_s[1] < waits_s[2] < waits_s[3] <= waits_s[4] <= 0.1


def test_a_batch_of_a_known_crowd_waits_for_nobody_else() -> None:
    assert Linger().enough == 1
    assert linger_after((200, 1.0), (200, 1.1)).enough == linger_after((200, 1.0), (3, 1.1)).enough == 200


def test_a_crowd_that_grows_may_double_with_each_batch() -> None:
    """Those who were served together come back together: a batch that closes at their number finds few others."""
    assert [linger_after((1, 0.9), (size, 1.0)).enough for size in (2, 50)] == [4, 100]
    assert linger_after((50, 1.0), (80, 1.1)).enough == 160
    assert linger_after((50, 1.0), (80, 1.1), (80, 1.2)).enough == 80
    assert linger_after((80, 1.0), (50, 2.1)).enough == 50, "it has shrunk"

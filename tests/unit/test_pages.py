"""Paging returns every lasting item once, with any page size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.pages import COMPARED_MAX, DEFAULT_PAGE, MAX_PAGE, BadPage, Page, page

keys = st.dictionaries(st.integers(0, 5), st.sets(st.text(max_size=4).filter(bool), max_size=12), max_size=5)


def walk(partitions: dict[int, set[str]], size: int) -> list[tuple[int, str]]:
    token, seen = "", []
    while True:
        found, token = page(sorted(partitions), partitions.__getitem__, size, token)
        assert len(found) <= size
        seen += found
        if not token:
            return seen
        assert len(found) == size, "only the last page may be short"


@given(keys, st.integers(1, 7))
def test_pages_join_to_the_whole(partitions: dict[int, set[str]], size: int) -> None:
    assert walk(partitions, size) == sorted((number, key) for number, found in partitions.items() for key in found)


@given(keys, st.integers(1, 7), st.sets(st.sampled_from("abc01")))
def test_filtered_pages_join_to_all_matching_items(
    partitions: dict[int, set[str]], size: int, firsts: set[str]
) -> None:
    token, seen = "", []
    while True:
        found, token = page(sorted(partitions), partitions.__getitem__, size, token, lambda _, key: key[0] in firsts)
        assert len(found) <= size
        seen += found
        if not token:
            break
    assert seen == sorted((n, key) for n, found in partitions.items() for key in found if key[0] in firsts)


def test_a_page_compares_a_bounded_number_of_keys() -> None:
    many = {number: {f"{key:05}" for key in range(COMPARED_MAX)} for number in range(2)}
    compared: list[tuple[int, str]] = []

    def is_last(number: int, key: str) -> bool:
        compared.append((number, key))
        return (number, key) == (1, f"{COMPARED_MAX - 1:05}")

    first, token = page([0, 1], many.__getitem__, 1, "", is_last)
    assert (first, len(compared)) == ([], COMPARED_MAX) and token
    rest, end = page([0, 1], many.__getitem__, 1, token, is_last)
    assert (len(rest), len(compared), end) == (1, 2 * COMPARED_MAX, "")


def test_a_lasting_item_is_returned_once_while_others_change() -> None:
    partitions = {0: {"b", "d", "f"}, 1: {"a"}}
    first, token = page([0, 1], partitions.__getitem__, 2, "")
    partitions[0] = {"a", "c", "f"}
    rest, end = page([0, 1], partitions.__getitem__, 2, token)
    assert (first, rest, end) == ([(0, "b"), (0, "d")], [(0, "f"), (1, "a")], "")


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (1_001, ""), (1, "x"), (1, "1"), (1, "9999999:a")])
def test_bad_pages_are_refused(size: int, token: str) -> None:
    with pytest.raises(BadPage, match=r"^page_(size|token): "):
        page([0], lambda _: ["a"], size, token)


def test_a_page_has_the_requested_size_up_to_the_limit() -> None:
    many = {0: {f"{number:05}" for number in range(MAX_PAGE)}, 1: {"a", "b"}}
    for size, held in ((0, DEFAULT_PAGE), (1, 1), (MAX_PAGE, MAX_PAGE)):
        assert len(page([0, 1], many.__getitem__, size, "").keys) == held


def test_an_invalid_token_is_quoted_up_to_a_length() -> None:
    with pytest.raises(BadPage) as refused:
        page([0], lambda _: ["a"], 1, "x" * 50)
    assert str(refused.value) == f"page_token: '{'x' * 40}' must be the next_page_token of the previous page"


@given(keys, st.integers(1, 7), st.integers(0, 9))
def test_pages_that_are_cut_to_a_size_join_to_the_whole(partitions: dict[int, set[str]], count: int, most: int) -> None:
    token, seen = "", []
    while True:
        found, token = page(sorted(partitions), partitions.__getitem__, count, token).within(most, _size_of)
        assert len(found) <= 1 or sum(_size_of(*one) for one in found) <= most
        seen += found
        if not token:
            break
        assert found
    assert seen == sorted((number, key) for number, found in partitions.items() for key in found)


def test_a_page_that_fits_exactly_is_not_cut() -> None:
    whole = Page([(0, "a"), (0, "b"), (0, "c")], "")
    assert whole.within(3, lambda *_: 1) == whole
    assert whole.within(2, lambda *_: 1) == Page([(0, "a"), (0, "b")], "0:b")


def _size_of(number: int, key: str) -> int:
    return number + len(key)

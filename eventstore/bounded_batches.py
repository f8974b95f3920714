"""Batches with a limit for the number of items and one for their size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def bounded_batches(
    items: Iterable[T], size_of: Callable[[T], int], *, items_max: int, bytes_max: int
) -> Iterator[list[T]]:
    """The items in order, in batches within both limits. A larger item is a batch of its own."""
    batch: list[T] = []
    size = 0
    for item in items:
        own = size_of(item)
        if batch and (len(batch) == items_max or size + own > bytes_max):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += own
    if batch:
        yield batch

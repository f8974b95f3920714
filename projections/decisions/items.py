"""What was decided, about whom: one thing, or the same of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, Protocol


class Item(NamedTuple):
    """What was decided, about whom, and what else there is to say of it, as text."""

    kind: str
    subject: str
    detail: dict[str, str]


class Items(NamedTuple):
    """Items that differ by their subjects only: a record of a thousand joins has one of these. Never of none."""

    kind: str
    subjects: Sequence[str]
    detail: dict[str, str]


def one(kind: str, subject: str, detail: dict[str, str]) -> Items:
    """A single item."""
    return Items(kind, (subject,), detail)


def each_of(items: Iterable[Items]) -> Iterator[Item]:
    """The items one by one."""
    for kind, subjects, detail in items:
        for subject in subjects:
            yield Item(kind, subject, detail)


def in_zones(kind: str, subjects: Iterable[str], zones: Iterable[str]) -> Iterator[Items]:
    """An item per subject, which says its zone; most neighbours share theirs."""
    rest = iter(subjects)
    for zone, run in groupby(zones):
        yield Items(kind, [subject for _, subject in zip(run, rest, strict=False)], in_zone(zone))


class Limits(Protocol):
    """What a zone is limited to, as fleet and the zone itself keep it."""

    @property
    def parallel_installs(self) -> int: ...

    @property
    def unavailable_nodes(self) -> int: ...

    @property
    def agent_networks(self) -> tuple[str, ...]: ...

    @property
    def agent_label_keys(self) -> tuple[str, ...]: ...

    @property
    def tries(self) -> tuple[int, ...]: ...


def limits_in_words(limits: Limits) -> dict[str, str]:
    """A detail that says what a zone is limited to."""
    return {
        "parallel_installs": str(limits.parallel_installs),
        "unavailable_nodes": str(limits.unavailable_nodes),
        "agent_networks": ",".join(limits.agent_networks),
        "agent_label_keys": ",".join(limits.agent_label_keys),
        "tries": ",".join(map(str, limits.tries)),
    }


@lru_cache(4_096)
def in_zone(zone: str) -> dict[str, str]:
    """A detail that thousands of items share. Nobody changes a detail."""
    return {"zone": zone}

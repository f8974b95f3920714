"""Items of a decision, each with its kind and subject. Items that differ only in their subjects share one
DecisionItems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, Protocol


class DecisionItem(NamedTuple):
    """One item of a decision: kind, subject, and details as text."""

    kind: str
    subject: str
    detail: dict[str, str]


class DecisionItems(NamedTuple):
    """Items that differ only in their subjects: one DecisionItems is enough for a record of a thousand joins. There is
    at least one subject."""

    kind: str
    subjects: Sequence[str]
    detail: dict[str, str]


def single_item(kind: str, subject: str, detail: dict[str, str]) -> DecisionItems:
    """A single item."""
    return DecisionItems(kind, (subject,), detail)


def flattened(items: Iterable[DecisionItems]) -> Iterator[DecisionItem]:
    """The items one by one."""
    for kind, subjects, detail in items:
        for subject in subjects:
            yield DecisionItem(kind, subject, detail)


def items_in_zones(kind: str, subjects: Iterable[str], zones: Iterable[str]) -> Iterator[DecisionItems]:
    """One item per subject, with the zone of the subject. Consecutive subjects of one zone share one DecisionItems."""
    rest = iter(subjects)
    for zone, run in groupby(zones):
        yield DecisionItems(kind, [subject for _, subject in zip(run, rest, strict=False)], zone_detail(zone))


class HasZoneLimits(Protocol):
    """The limits of a zone, as fleet and the zone itself store them."""

    @property
    def parallel_installs(self) -> int: ...

    @property
    def unavailable_nodes(self) -> int: ...

    @property
    def agent_networks(self) -> tuple[str, ...]: ...

    @property
    def agent_label_keys(self) -> tuple[str, ...]: ...

    @property
    def attempt_limits(self) -> tuple[int, ...]: ...


def limits_detail(limits: HasZoneLimits) -> dict[str, str]:
    """A detail with the limits of a zone."""
    return {
        "parallel_installs": str(limits.parallel_installs),
        "unavailable_nodes": str(limits.unavailable_nodes),
        "agent_networks": ",".join(limits.agent_networks),
        "agent_label_keys": ",".join(limits.agent_label_keys),
        "attempt_limits": ",".join(map(str, limits.attempt_limits)),
    }


def result_detail(result: Mapping[str, int]) -> dict[str, str]:
    """A detail with the result of a command."""
    return {name: str(value) for name, value in result.items()}


@lru_cache(4_096)
def zone_detail(zone: str) -> dict[str, str]:
    """A detail that thousands of items share, so it must not be mutated."""
    return {"zone": zone}

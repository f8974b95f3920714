"""The index of names is compared with a dict, in bulk and name by name, with good and with bad hashes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections import name_index
from projections.name_index import UNKNOWN, NameIndex, Numbers

NAMES = st.one_of(st.text(max_size=20), st.sampled_from([f"node-{number:03}" for number in range(60)]))
HASHES: dict[str, Callable[[str], int]] = {
    "its own": hash,
    "one of four": lambda name: (len(name) % 4) << 61,
    "at the end": lambda name: -1 - (len(name) % 3 << 40),
    "none": lambda name: 0,
}
BATCHES = st.lists(NAMES, unique=True, max_size=60)


class Named:
    """An index, and the names by number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.index = NameIndex(self.names.__getitem__, self.names_of)
        self.known: dict[str, int] = {}

    def names_of(self, numbers: Numbers) -> list[str]:
        return [self.names[number] for number in numbers.tolist()]

    def add(self, names: list[str], *, looked_up: bool = False) -> None:
        new = [name for name in names if name not in self.known]
        lookup = self.index.find(new) if looked_up else None
        assert lookup is None or lookup.is_empty()
        self.index.add(new, np.arange(len(self.names), len(self.names) + len(new)), lookup)
        self.known |= {name: number for number, name in enumerate(new, len(self.names))}
        self.names += new

    def remove(self, names: list[str]) -> None:
        found = [name for name in names if name in self.known]
        self.index.remove(found, np.array([self.known.pop(name) for name in found], np.int64))

    def check(self, names: list[str]) -> None:
        wanted = [self.known.get(name, UNKNOWN) for name in names]
        assert self.index.find(names).numbers.tolist() == wanted
        assert [self.index.find_one(name) for name in names] == wanted


@pytest.mark.parametrize("hashed", HASHES)
@pytest.mark.parametrize("few", [0, 24])
@given(st.lists(st.tuples(st.sampled_from(["add", "add looked up", "remove", "find"]), BATCHES), max_size=12))
def test_the_index_equals_a_dict(few: int, hashed: str, steps: list[tuple[str, list[str]]]) -> None:
    named, seen = Named(), set[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_index, "_FEW", few)
        patch.setattr(name_index, "hash", HASHES[hashed], raising=False)
        for what, names in steps:
            if what == "remove":
                named.remove(names)
            elif what != "find":
                named.add(names, looked_up=what != "add")
            named.check(names)
            seen.update(names)
            named.check(sorted(seen))


def test_the_index_grows_and_drops_the_places_of_removed_names() -> None:
    named = Named()
    for batch in range(40):
        names = [f"b{batch}-{number}" for number in range(500)]
        named.add(names)
        named.remove(names[:400])
    named.check([f"b{batch}-{number}" for batch in range(41) for number in range(500)])
    assert len(named.known) == 40 * 100
    assert named.index._mask < 1 << 16, "as many as 4,000 names and what came since they were last counted need"

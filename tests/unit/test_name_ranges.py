"""Names as ranges: every name is listed exactly once, and nothing else."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from projections.name_ranges import fold_names

NAMES = st.sets(
    st.one_of(
        st.from_regex(r"[a-z-]{0,3}[0-9]{1,4}(\.[a-z]{1,2})?", fullmatch=True),
        st.from_regex(r"[a-z]{1,3}", fullmatch=True),
        st.integers(0, 1_200).map(lambda number: f"rack-7-node-{number:03}"),
    ),
    max_size=60,
)


def expand(entry: str) -> list[str]:
    match = re.fullmatch(r"([^\[]*)\[([0-9,-]+)\]([^\]]*)", entry)
    if match is None:
        return [entry]
    prefix, parts, suffix = match.groups()
    names = []
    for part in parts.split(","):
        first, _, last = part.partition("-")
        width = len(first) if first.startswith("0") else 0
        names += [f"{prefix}{number:0{width}}{suffix}" for number in range(int(first), int(last or first) + 1)]
    return names


@given(NAMES)
def test_entries_list_exactly_the_names(names: set[str]) -> None:
    listed = [name for entry in fold_names(names) for name in expand(entry)]
    assert sorted(listed) == sorted(names)


def test_names_of_a_rack_are_one_entry() -> None:
    assert fold_names(f"rack-7-node-{number:03}" for number in range(1, 19)) == ["rack-7-node-[001-018]"]
    assert fold_names(f"n{number}.example" for number in (8, 9, 10, 12)) == ["n[8-10,12].example"]
    assert fold_names(f"n{number:02}" for number in range(8, 101)) == ["n100", "n[08-99]"]
    assert fold_names(["a", "b7", "b07"]) == ["a", "b07", "b7"]

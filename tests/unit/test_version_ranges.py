"""Ranges of versions: the grammar of charts, and laws that hold for all versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.resources.deployments.version_ranges import VersionRange, version, version_range


def has(text: str, found: str) -> bool:
    ranged, known = version_range(text), version(found)
    assert ranged is not None and known is not None
    return ranged.has(known)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("2.9.1", ["2.9.1", "v2.9.1"], ["2.9.0", "2.9.2"]),
        ("2.9", ["2.9.0", "2.9.7"], ["2.10.0", "2.8.9"]),
        ("2", ["2.0.0", "2.99.0"], ["3.0.0", "1.9.9"]),
        ("2.9.x", ["2.9.0", "2.9.7"], ["2.10.0"]),
        ("*", ["0.0.0", "9.9.9"], []),
        (">= 2.9.0, < 4", ["2.9.0", "3.9.9"], ["2.8.9", "4.0.0"]),
        (">=2.9.0 <4", ["2.9.0", "3.9.9"], ["2.8.9", "4.0.0"]),
        ("> 2.9", ["2.10.0"], ["2.9.9"]),
        ("> 2.9.1", ["2.9.2"], ["2.9.1"]),
        ("<= 2.9", ["2.9.9", "1.0.0"], ["2.10.0"]),
        ("=< 2.9.1", ["2.9.1"], ["2.9.2"]),
        ("!= 2.9", ["2.8.9", "2.10.0"], ["2.9.1"]),
        ("!=2.9.1", ["2.9.0"], ["2.9.1"]),
        ("~2.9.3", ["2.9.3", "2.9.9"], ["2.9.2", "2.10.0"]),
        ("~> 2", ["2.0.0", "2.9.0"], ["3.0.0"]),
        ("^2.9.3", ["2.9.3", "2.99.0"], ["2.9.2", "3.0.0"]),
        ("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0"]),
        ("^0.0.3", ["0.0.3"], ["0.0.4", "0.1.0"]),
        ("^0.0", ["0.0.9"], ["0.1.0"]),
        ("^0", ["0.9.9"], ["1.0.0"]),
        ("2.9 - 3.1", ["2.9.0", "3.1.9"], ["2.8.9", "3.2.0"]),
        ("^2.9 || 3.1.x", ["2.9.0", "3.1.4"], ["3.0.0", "3.2.0"]),
        (">=2.9.0-0", ["2.9.0", "2.9.0-rc1"], ["2.8.0"]),
    ],
)
def test_a_range_has_versions(text: str, inside: list[str], outside: list[str]) -> None:
    assert [each for each in (*inside, *outside) if has(text, each)] == inside


@pytest.mark.parametrize("text", ["", "a", ">=", "2.9 ||", "2.9.1.2", ">> 1", "2.9; 3", "1" * 400])
def test_a_text_that_is_no_range_is_none(text: str) -> None:
    assert version_range(text) is None


@pytest.mark.parametrize("text", ["", "a", "2.x", "1.2.3.4"])
def test_a_text_that_is_no_version_is_none(text: str) -> None:
    assert version(text) is None


NUMBERS = st.integers(0, 3)
FULL = st.lists(NUMBERS, min_size=3, max_size=3).map(lambda each: ".".join(map(str, each)))
PARTIAL = st.lists(NUMBERS, min_size=1, max_size=3).map(lambda each: ".".join(map(str, each)))


@given(PARTIAL, PARTIAL, FULL)
def test_comparisons_agree_with_each_other(one: str, other: str, found: str) -> None:
    assert has(f">{one}", found) != has(f"<={one}", found)
    assert has(f"<{one}", found) != has(f">={one}", found)
    assert has(f"!={one}", found) != has(f"={one}", found)
    assert has(one, found) == (has(f">={one}", found) and has(f"<={one}", found))
    for kind in "~^":
        assert not has(f"{kind}{one}", found) or has(f">={one}", found)
        assert not has(one, found) or has(f"{kind}{one}", found)
    assert has(f"{one} || {other}", found) == (has(one, found) or has(other, found))
    assert has(f">={one}, <{other}", found) == (has(f">={one}", found) and has(f"<{other}", found))
    assert has(f"{one} - {other}", found) == (has(f">={one}", found) and has(f"<={other}", found))


@given(st.text(alphabet="0123456789.xX*<>=!~^|-, v", max_size=30))
def test_no_text_raises(text: str) -> None:
    found = version_range(text)
    assert found is None or isinstance(found, VersionRange)
    version(text)

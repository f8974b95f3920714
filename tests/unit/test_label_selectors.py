"""Label selectors match as in Kubernetes, and invalid ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.label_selectors import CHARACTERS_MAX, BadSelector, Requirement, matches, parse_selector

LABELS = {"tier": "web", "rack": "7", "example.com/os": "linux", "empty": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("tier=web", True),
        ("tier==web", True),
        (" tier = web ", True),
        ("tier=db", False),
        ("tier!=web", False),
        ("tier!=db", True),
        ("owner!=ann", True),
        ("owner=ann", False),
        ("rack in (6,7)", True),
        ("rack in ( 6 , 8 )", False),
        ("rack notin (6,8)", True),
        ("rack notin (7)", False),
        ("owner notin (ann)", True),
        ("owner in (ann)", False),
        ("tier", True),
        ("owner", False),
        ("!owner", True),
        ("! tier", False),
        ("empty=", True),
        ("tier=", False),
        ("empty in ()", True),
        ("in in (7)", False),
        ("notin", False),
        ("example.com/os=linux,tier in (web,db),!owner", True),
        ("tier=web,rack=8", False),
        ("tier=web,tier=db", False),
    ],
)
def test_a_selector_matches_as_in_kubernetes(text: str, expected: bool) -> None:
    assert matches(parse_selector("label_selector", text), LABELS) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (",", "',' must be KEY=VALUE"),
        ("tier=web,", "'' must be KEY=VALUE"),
        ("tier=web,,rack=7", "',rack=7' must be"),
        ("=web", "'=web' must be"),
        ("tier in web", "'tier in web' must be"),
        ("tier in (web", "'tier in (web' must be"),
        ("tier>3", "'tier>3' must be 1 to 63"),
        ("tier=a=(b)", "'tier=a=(b)' must be"),
        ("tier web", "'tier web' must be"),
        ("_tier", "'_tier' must be 1 to 63"),
        ("a" * (CHARACTERS_MAX + 1), f"{CHARACTERS_MAX + 1} characters are more than the {CHARACTERS_MAX} allowed"),
        (",".join(["a"] * 65), "65 requirements are more than the 64 allowed"),
    ],
)
def test_an_invalid_selector_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(BadSelector) as refused:
        parse_selector("label_selector", text)
    assert str(refused.value).startswith(f"label_selector: {said}")


def spelled(requirement: Requirement) -> str:
    if requirement.values is None:
        return f"{'!' if requirement.negated else ''}{requirement.key}"
    word = "notin" if requirement.negated else "in"
    return f"{requirement.key} {word} ({','.join(sorted(requirement.values))})"


KEYS, VALUES = st.sampled_from(["a", "b", "x.y/c"]), st.sampled_from(["", "1", "2"])
REQUIREMENTS = st.builds(Requirement, KEYS, st.none() | st.frozensets(VALUES, min_size=1), negated=st.booleans())


@given(st.lists(REQUIREMENTS, max_size=4), st.dictionaries(KEYS, VALUES))
def test_all_requirements_of_a_selector_must_hold(requirements: list[Requirement], labels: dict[str, str]) -> None:
    selector = parse_selector("f", ",".join(map(spelled, requirements)))
    assert list(selector) == requirements
    assert matches(selector, labels) == all(
        ((labels.get(r.key) in (r.values or {*labels.values()})) if r.key in labels else False) != r.negated
        for r in requirements
    )


@given(st.text("ab=!,() in\t", max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        selector = parse_selector("f", text)
    except BadSelector:
        return
    assert matches(selector, {"a": "b"}) in (True, False)

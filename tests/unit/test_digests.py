"""Prefix digests: bulk and single digests agree, they add up, and each depends on all fields of its rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from projections.rules.digests import digest_of, to_bytes
from projections.rules.prefixes import SIZE4, SIZE6, pack_ints
from projections.rules.rule import Rule

RULE = Rule(0, "allow", "any", ())
MOD = 1 << 128

keys4 = st.builds(lambda a, n: a << 8 | n, st.integers(0, 2**32 - 1), st.integers(0, 32))
keys6 = st.builds(lambda a, n: a << 8 | n, st.integers(0, 2**128 - 1), st.integers(0, 128))


@given(st.lists(keys4, min_size=30, max_size=60), st.lists(keys6, min_size=30, max_size=60))
def test_the_bulk_digest_is_the_sum_of_single_digests(four: list[int], six: list[int]) -> None:
    singles = sum(digest_of(RULE, pack_ints([key], SIZE4), b"") for key in four)
    singles += sum(digest_of(RULE, b"", pack_ints([key], SIZE6)) for key in six)
    assert digest_of(RULE, pack_ints(four, SIZE4), pack_ints(six, SIZE6)) == singles % MOD


def test_a_digest_depends_on_every_field_of_its_rule() -> None:
    rules = [
        RULE,
        Rule(1, "allow", "any", ()),
        Rule(0, "drop", "any", ()),
        Rule(0, "allow", "tcp", ()),
        Rule(0, "allow", "tcp", (80, 80)),
        Rule(0, "allow", "tcp", (80, 81)),
    ]
    packed = pack_ints([10 << 32 | 32], SIZE4)
    assert len({digest_of(rule, packed, b"") for rule in rules}) == len(rules)


def test_prefixes_of_different_length_or_family_have_different_digests() -> None:
    digests = {digest_of(RULE, pack_ints([10 << 32 | length], SIZE4), b"") for length in range(8, 33)}
    digests |= {digest_of(RULE, b"", pack_ints([10 << 32 | length], SIZE6)) for length in range(8, 33)}
    assert len(digests) == 50


def test_the_digest_of_no_prefix_is_zero_and_order_does_not_matter() -> None:
    assert digest_of(RULE, b"", b"") == 0
    keys = [(10 << 24) + i << 8 | 32 for i in range(100)]
    assert digest_of(RULE, pack_ints(keys, SIZE4), b"") == digest_of(RULE, pack_ints(keys[::-1], SIZE4), b"")


def test_the_digest_of_one_prefix_is_pinned_because_devices_keep_digests_over_upgrades() -> None:
    digest = to_bytes(digest_of(RULE, pack_ints([10 << 32 | 8], SIZE4), b""))
    assert digest.hex() == "dc4802167e0fa5dd6246286a7c5e33dd"

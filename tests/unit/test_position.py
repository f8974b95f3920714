"""Position tokens: encoded ones decode to themselves, and foreign ones are refused in one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.composition.topics import TOPICS
from eventstore.log import Partition
from eventstore.position import InvalidPosition, Position, check_token, from_token, to_token

LOG = "0198c5a2"

partitions = st.builds(Partition, st.sampled_from(TOPICS.folded), st.integers(0, 999_999))
offsets = st.dictionaries(partitions, st.integers(0, 10**18 - 1), max_size=40)


@given(offsets)
def test_a_token_decodes_to_its_position(positions: dict[Partition, int]) -> None:
    assert from_token(to_token(Position(LOG, positions)), LOG) == Position(LOG, positions)


@given(offsets)
def test_equal_positions_have_equal_tokens(positions: dict[Partition, int]) -> None:
    assert to_token(Position(LOG, positions)) == to_token(Position(LOG, dict(reversed(positions.items()))))


@given(st.text(max_size=80))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    try:
        position = from_token(f"{LOG}:{text}", LOG)
    except InvalidPosition as refusal:
        assert str(refusal).startswith("position: ")
    else:
        assert from_token(to_token(position), LOG) == position


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "'' must be that of this log"),
        ("other:zones/3=15", "'other' must be that of this log"),
        (f"{LOG}:zones/3", "TOPIC/PARTITION=OFFSET"),
        (f"{LOG}:zones/3=-1", "TOPIC/PARTITION=OFFSET"),
        (f"{LOG}:zones/3=1,", "'' must have the form"),
        (f"{LOG}:zones/3=1 ", "TOPIC/PARTITION=OFFSET"),
        (f"{LOG}:zones/٣=1", "TOPIC/PARTITION=OFFSET"),
        (f"{LOG}:" + "zones/1=1," * 10_000, "more than the 65536"),
    ],
)
def test_a_token_of_another_log_is_refused_with_the_reason(token: str, reason: str) -> None:
    with pytest.raises(InvalidPosition, match=reason):
        from_token(token, LOG)


def test_a_token_of_any_log_is_accepted_without_an_open_log() -> None:
    check_token(f"{LOG}:zones/3=15")
    check_token("another-log:")


_SHAPE = "must have the form LOGID:TOPIC/PARTITION=OFFSET,..."


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", f"position: '' {_SHAPE}"),
        ("zones/3=15", f"position: 'zones/3=15' {_SHAPE}"),
        (":zones/3=15", f"position: ':zones/3=15' {_SHAPE}"),
        ("x" * 50, f"position: '{'x' * 40}' {_SHAPE}"),
        ("a:b:zones/3=15", "position: 'b:zones/3=15' must have the form TOPIC/PARTITION=OFFSET"),
        ("a:" + "z" * 50, f"position: '{'z' * 40}' must have the form TOPIC/PARTITION=OFFSET"),
    ],
)
def test_an_invalid_token_is_refused_and_quoted_up_to_a_length_too(token: str, reason: str) -> None:
    with pytest.raises(InvalidPosition) as refused:
        check_token(token)
    assert str(refused.value) == reason


def test_a_token_of_a_log_with_a_long_name_is_refused_in_one_line() -> None:
    with pytest.raises(InvalidPosition) as refused:
        from_token(f"{'y' * 50}:zones/3=15", LOG)
    assert str(refused.value) == f"position: log id '{'y' * 40}' must be that of this log, '{LOG}'"


def test_the_longest_token_is_read_and_one_character_more_is_not() -> None:
    parts = "zones/1=1," * 6_551
    longest = f"{LOG}:{parts}zones/2={'7' * 9}"
    assert len(longest) == 65_536
    assert from_token(longest, LOG).offsets[Partition("zones", 2)] == 777_777_777
    with pytest.raises(InvalidPosition, match="65537 characters are more than the 65536 allowed"):
        from_token(f"{longest}7", LOG)

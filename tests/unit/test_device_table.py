"""A device's own checks of frames: an accepted frame leads exactly to its table, and any other changes nothing."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.rules import digests
from projections.rules.device_table import (
    EMPTY_TABLE,
    NUMPY_MIN,
    WIDTH4,
    WIDTH6,
    DeviceTable,
    FrameRefused,
    Prefixes,
    RefusalCode,
    apply,
    digest_of,
    pack,
    steps_between,
    unpack,
)
from projections.rules.rule import Delta, Rule, SetStep, precedence
from tests.support.rule_source import ALLOW, DROP, packed

SSH = Rule(10, "allow", "tcp", (22, 22))
ROOM = 1_000_000


@st.composite
def prefixes(draw: st.DrawFn) -> bytes:
    bits = draw(st.sampled_from((32, 128)))
    length = draw(st.integers(0, bits))
    address = draw(st.integers(0, (1 << length) - 1)) << (bits - length)
    return address.to_bytes(bits // 8, "big") + bytes((length,))


RULES = st.dictionaries(
    st.sampled_from((ALLOW, DROP, SSH)), st.frozensets(prefixes(), min_size=1, max_size=30), max_size=3
)


def table(version: int, rules: dict[Rule, Prefixes], epoch: int = 1) -> DeviceTable:
    return DeviceTable(epoch, version, digest_of(rules), rules)


def delta(old: DeviceTable, new: DeviceTable) -> Delta:
    return Delta(old.version, new.version, new.digest, steps_between(old, new))


def refusal(held: DeviceTable, frame: Delta, *, epoch: int = 1, capacity: int = ROOM) -> FrameRefused:
    after = apply(held, epoch, frame, capacity=capacity)
    assert isinstance(after, FrameRefused)
    assert after.reason.count("\n") == 0
    assert after.reason
    return after


@given(RULES, RULES)
def test_a_delta_leads_from_any_table_to_any_other_table(old: dict[Rule, Prefixes], new: dict[Rule, Prefixes]) -> None:
    held, wanted = table(3, old), table(9, new)
    assert apply(held, 1, delta(held, wanted), capacity=ROOM) == wanted


@given(st.lists(RULES, min_size=1, max_size=6))
def test_a_chain_of_deltas_and_a_snapshot_yield_the_same_table(versions: list[dict[Rule, Prefixes]]) -> None:
    held = EMPTY_TABLE._replace(epoch=1)
    for version, rules in enumerate(versions, start=1):
        wanted = table(version, rules)
        after = apply(held, 1, delta(held, wanted), capacity=ROOM)
        assert isinstance(after, DeviceTable)
        held = after
    whole = Delta(0, held.version, held.digest, steps_between(EMPTY_TABLE, held))
    assert apply(table(1, {DROP: packed("9.0.0.0/8")}, epoch=0), 1, whole, capacity=ROOM) == held


@given(RULES, RULES)
def test_steps_keep_prefixes_of_both_tables_and_add_none_of_neither(
    old: dict[Rule, Prefixes], new: dict[Rule, Prefixes]
) -> None:
    steps = steps_between(table(1, old), table(2, new))
    now = {rule: set(held) for rule, held in old.items()}
    for step in steps:
        now.setdefault(step.rule, set()).update(unpack(step.add4, step.add6))
        now[step.rule] -= unpack(step.remove4, step.remove6)
        for rule, there in now.items():
            before, after = set(old.get(rule, ())), set(new.get(rule, ()))
            assert before & after <= there <= before | after
    adds = [step.rule for step in steps if step.add4 or step.add6]
    removes = [step.rule for step in steps if step.remove4 or step.remove6]
    assert [step.rule for step in steps] == adds + removes
    assert adds == sorted(adds, key=precedence)
    assert removes == sorted(removes, key=precedence, reverse=True)


@given(RULES, RULES, st.data())
def test_an_altered_frame_is_refused_and_changes_nothing(
    old: dict[Rule, Prefixes], new: dict[Rule, Prefixes], data: st.DataObject
) -> None:
    held, wanted = table(3, old), table(9, new)
    frame = delta(held, wanted)
    if not frame.steps:
        return
    at = data.draw(st.integers(0, len(frame.steps) - 1))
    fewer = frame._replace(steps=frame.steps[:at] + frame.steps[at + 1 :])
    twice = frame._replace(steps=(*frame.steps[:at], frame.steps[at], *frame.steps[at:]))
    moved = frame.steps[at]._replace(rule=frame.steps[at].rule._replace(priority=77))
    elsewhere = frame._replace(steps=(*frame.steps[:at], moved, *frame.steps[at + 1 :]))
    for spoilt in (fewer, twice, elsewhere):
        assert refusal(held, spoilt).code in (RefusalCode.DIGEST, RefusalCode.MALFORMED)
    assert held == table(3, old)


def test_an_older_version_is_refused_and_epochs_are_compared_first() -> None:
    held = table(7, {ALLOW: packed("10.0.0.0/8")}, epoch=2)
    for epoch, version in ((2, 6), (1, 7), (1, 999)):
        assert refusal(held, delta(EMPTY_TABLE, table(version, {}, epoch)), epoch=epoch).code is RefusalCode.OLDER
    newer = table(1, {ALLOW: packed("11.0.0.0/8")}, epoch=3)
    assert apply(held, 3, delta(EMPTY_TABLE, newer), capacity=ROOM) == newer


def test_a_repeated_version_changes_nothing_unless_the_content_differs() -> None:
    held = table(7, {ALLOW: packed("10.0.0.0/8")})
    assert apply(held, 1, delta(table(3, {}), held), capacity=ROOM) is held
    other = table(7, {ALLOW: packed("11.0.0.0/8")})
    assert apply(other, 1, delta(EMPTY_TABLE, held), capacity=ROOM) == held
    assert refusal(other, delta(table(3, {}), held)).code is RefusalCode.BASE


def test_a_delta_from_a_version_that_is_not_held_is_refused() -> None:
    held = table(7, {ALLOW: packed("10.0.0.0/8")})
    assert refusal(held, Delta(5, 9, held.digest, ())).code is RefusalCode.BASE
    assert refusal(held, Delta(7, 9, held.digest, ()), epoch=2).code is RefusalCode.BASE


def test_a_delta_that_exceeds_the_capacity_at_any_step_is_refused() -> None:
    held = table(1, {ALLOW: packed("10.0.0.0/8", "11.0.0.0/8")})
    swapped = table(2, {ALLOW: packed("12.0.0.0/8", "13.0.0.0/8")})
    assert (
        refusal(held, delta(held, swapped), capacity=3).code is RefusalCode.FULL
    )  # the device holds old and new prefixes for a moment
    assert apply(held, 1, delta(held, swapped), capacity=4) == swapped
    assert apply(held, 1, delta(EMPTY_TABLE, swapped), capacity=2) == swapped


@pytest.mark.parametrize(
    "step",
    [
        SetStep(ALLOW, b"\x0a\x00\x00\x00", b"", b"", b""),
        SetStep(ALLOW, b"\x0a\x00\x00\x00\x21", b"", b"", b""),
        SetStep(ALLOW, b"\x0a\x00\x00\x01\x08", b"", b"", b""),
        SetStep(ALLOW, b"\x0a\x00\x00\x00\x08" * 40 + b"\x0a\x00\x00\x01\x08", b"", b"", b""),
        SetStep(ALLOW, b"", bytes(16) + b"\x81", b"", b""),
        SetStep(ALLOW, b"", bytes(15) + b"\x01\x7f", b"", b""),
        SetStep(ALLOW, b"", b"", b"\x0a\x00\x00\x00\x08", b""),
        SetStep(ALLOW._replace(ports=(1,)), b"\x0a\x00\x00\x00\x08", b"", b"", b""),
        SetStep(ALLOW._replace(ports=(1, 65_536)), b"\x0a\x00\x00\x00\x08", b"", b"", b""),
    ],
)
def test_a_malformed_frame_is_refused(step: SetStep) -> None:
    digest = digests.to_bytes(digests.digest_of(ALLOW, step.add4, b""))
    assert refusal(EMPTY_TABLE, Delta(0, 1, digest, (step,))).code is RefusalCode.MALFORMED


def test_many_prefixes_are_checked_as_strictly_as_few() -> None:
    many = packed(*(f"10.{i // 250}.{i % 250}.0/24" for i in range(1000)), *(f"2001:db8:{i:x}::/48" for i in range(99)))
    wanted = table(1, {ALLOW: many})
    assert apply(EMPTY_TABLE, 1, delta(EMPTY_TABLE, wanted), capacity=ROOM) == wanted
    assert {str(ip_network((p[:-1], p[-1]))) for p in unpack(*pack(many))} >= {"10.0.0.0/24", "2001:db8:62::/48"}


@pytest.mark.parametrize("prefixes", [1, 2, NUMPY_MIN, NUMPY_MIN + 1, 40])
@pytest.mark.parametrize("family", [0, 1])
def test_an_incomplete_prefix_is_refused_after_any_number_of_whole_ones(prefixes: int, family: int) -> None:
    both = [b"", b""]
    both[family] = b"\x00" * ([WIDTH4, WIDTH6][family] * prefixes - 1)
    with pytest.raises(ValueError, match=r"whole|multiple"):
        unpack(*both)

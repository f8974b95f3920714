"""A device's refusals of frames: each has a code and a reason, and a malformed prefix is found among any others."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from projections.rules.device_table import (
    EMPTY_TABLE,
    NUMPY_MIN,
    DeviceTable,
    FrameRefused,
    Prefixes,
    RefusalCode,
    apply,
    digest_of,
)
from projections.rules.rule import Delta, Rule, SetStep
from tests.support.rule_source import ALLOW, packed

TEN = packed("10.0.0.0/8")
NET = bytes((10, 0, 0, 0, 8))
SHOWN = f"the {ALLOW.action} rule of priority {ALLOW.priority} ({ALLOW.protocol})"


def table(version: int, prefixes: Prefixes = frozenset(), epoch: int = 1) -> DeviceTable:
    rules = {ALLOW: prefixes} if prefixes else {}
    return DeviceTable(epoch, version, digest_of(rules), rules)


def step(add4: bytes = b"", remove4: bytes = b"", add6: bytes = b"", remove6: bytes = b"") -> SetStep:
    return SetStep(ALLOW, add4, add6, remove4, remove6)


HELD = table(7, TEN)
WHOLE = f"digest: {HELD.digest.hex()} after these steps is not {'00' * 16}"


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (Delta(7, 6, b"", ()), RefusalCode.OLDER, "version: (1, 6) is older than (1, 7), which this device holds"),
        (Delta(6, 9, b"", ()), RefusalCode.BASE, "from_version: (1, 6) is not (1, 7), which this device holds"),
        (Delta(7, 9, bytes(16), ()), RefusalCode.DIGEST, WHOLE),
        (
            Delta(7, 9, b"", (step(NET),)),
            RefusalCode.MALFORMED,
            f"steps: {SHOWN} adds prefixes that the table already has",
        ),
        (
            Delta(7, 9, b"", (step(remove4=bytes((11, 0, 0, 0, 8))),)),
            RefusalCode.MALFORMED,
            f"steps: {SHOWN} removes prefixes that the table lacks",
        ),
        (
            Delta(7, 9, b"", (step(bytes((11, 0, 0, 0, 8)) + bytes((12, 0, 0, 0, 8))),)),
            RefusalCode.FULL,
            "steps: 3 prefixes are more than the 2 that fit the device",
        ),
        (
            Delta(7, 9, b"", (step(NET[:4]),)),
            RefusalCode.MALFORMED,
            "steps: 4 bytes must be a multiple of 5 bytes per prefix",
        ),
        (
            Delta(7, 9, b"", (step(remove6=NET),)),
            RefusalCode.MALFORMED,
            "steps: 5 bytes must be a multiple of 17 bytes per prefix",
        ),
        (
            Delta(7, 9, b"", (step(bytes((10, 0, 0, 1, 8))),)),
            RefusalCode.MALFORMED,
            f"steps: {SHOWN} has a prefix that is too long or has host bits set",
        ),
        (
            Delta(7, 9, b"", (step(NET)._replace(rule=ALLOW._replace(ports=(1, 2, 3))),)),
            RefusalCode.MALFORMED,
            "steps.ports: (1, 2, 3) must be pairs of first and last, up to 65535",
        ),
    ],
)
def test_a_refused_frame_has_a_code_and_a_reason(frame: Delta, code: RefusalCode, reason: str) -> None:
    assert apply(HELD, 1, frame, capacity=2) == FrameRefused(code, reason)


def test_a_step_with_a_repeated_prefix_is_refused() -> None:
    twice = Delta(0, 9, digest_of({ALLOW: TEN}), (step(NET + NET),))
    assert apply(HELD, 1, twice, capacity=9) == FrameRefused(
        RefusalCode.MALFORMED, f"steps: {SHOWN} adds prefixes that the table already has"
    )


def test_capacity_counts_the_held_prefixes_after_each_step() -> None:
    """A set that is added in several steps fits exactly, and a rule without prefixes leaves the table."""
    swap = (step(bytes((11, 0, 0, 0, 8))), step(remove4=NET), step(bytes((12, 0, 0, 0, 8))))
    wanted = table(8, packed("11.0.0.0/8", "12.0.0.0/8"))
    assert apply(HELD, 1, Delta(7, 8, wanted.digest, swap), capacity=2) == wanted
    assert wanted.size == 2
    empty = Delta(8, 9, EMPTY_TABLE.digest, (step(remove4=bytes((11, 0, 0, 0, 8, 12, 0, 0, 0, 8))),))
    assert apply(wanted, 1, empty, capacity=2) == table(9)


def test_a_step_may_use_the_room_that_an_earlier_step_freed() -> None:
    held = table(7, packed("10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"))
    steps = (step(remove4=NET), step(bytes((13, 0, 0, 0, 8)) + bytes((14, 0, 0, 0, 8))))
    wanted = table(8, packed("11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8", "14.0.0.0/8"))
    frame = Delta(7, 8, wanted.digest, steps)
    assert apply(held, 1, frame, capacity=4) == wanted
    assert apply(held, 1, frame, capacity=3) == FrameRefused(
        RefusalCode.FULL, "steps: 4 prefixes are more than the 3 that fit the device"
    )


def test_the_whole_range_of_ports_is_accepted() -> None:
    rule: Rule = ALLOW._replace(ports=(0, 65_535))
    wanted = DeviceTable(1, 8, digest_of({rule: TEN}), {rule: TEN})
    assert apply(EMPTY_TABLE, 1, Delta(0, 8, wanted.digest, (step(NET)._replace(rule=rule),)), capacity=1) == wanted


def applied_or_refused(bits: int, prefixes: list[bytes]) -> DeviceTable | FrameRefused:
    """The result of a frame that adds these prefixes to an empty table."""
    held = b"".join(prefixes)
    adds = step(add4=held) if bits == 32 else step(add6=held)
    return apply(EMPTY_TABLE, 1, Delta(0, 1, digest_of({ALLOW: frozenset(prefixes)}), (adds,)), capacity=99)


@pytest.mark.parametrize("others", [0, NUMPY_MIN - 1, NUMPY_MIN, 2 * NUMPY_MIN])
@pytest.mark.parametrize(
    ("bits", "length"),
    [
        *((32, length) for length in (0, 1, 7, 8, 9, 24, 31, 32)),
        *((128, length) for length in (0, 63, 64, 65, 127, 128)),
    ],
)
def test_a_malformed_prefix_is_found_among_any_number_of_valid_ones(bits: int, length: int, others: int) -> None:
    """Covers every host bit, and lengths beyond those of the family, with few and with many other prefixes."""
    hosts = [(number + 1).to_bytes(bits // 8, "big") + bytes((bits,)) for number in range(others)]
    address = (1 << bits) - (1 << bits - length)
    spelled = [address, *(address | 1 << bit for bit in range(bits - length))]
    for each in spelled:
        prefix = each.to_bytes(bits // 8, "big") + bytes((length,))
        after = applied_or_refused(bits, [*hosts, prefix])
        assert isinstance(after, DeviceTable) == is_valid(prefix) == (each == address)
    for longer in (bits + 1, 255):
        after = applied_or_refused(bits, [*hosts, address.to_bytes(bits // 8, "big") + bytes((longer,))])
        assert isinstance(after, FrameRefused) and after.code is RefusalCode.MALFORMED


def is_valid(prefix: bytes) -> bool:
    """Whether Python's ipaddress accepts the prefix."""
    try:
        ip_network((prefix[:-1], prefix[-1]))
    except ValueError:
        return False
    return True

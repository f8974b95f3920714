"""Sequences of steps between two tables. An unsafe one is reported with a packet whose verdict is of neither table."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

import pytest

from projections.rules.rule import Rule, SetStep
from tests.simulation.checkers.verdicts import Table, unsafe

ONE = "10.0.0.1/32"


def packed(nets: Iterable[str]) -> bytes:
    found = map(ip_network, nets)
    return b"".join(net.network_address.packed + bytes((net.prefixlen,)) for net in found)


def step(rule: Rule, add: Iterable[str] = (), remove: Iterable[str] = ()) -> SetStep:
    by_family = ([net for net in nets if (":" in net) == six] for nets in (add, remove) for six in (False, True))
    return SetStep(rule, *map(packed, by_family))


def table(rule: Rule, *nets: str) -> dict[Rule, frozenset[bytes]]:
    return {rule: frozenset(packed([net]) for net in nets)}


def rule(action: str = "allow", protocol: str = "any", *ports: int, priority: int = 0) -> Rule:
    return Rule(priority, action, protocol, ports)


def fault_of(before: Table, *steps: SetStep) -> str:
    """The fault of these steps, with the address as text."""
    fault = unsafe(before, steps)
    width, _, number = fault.partition("(")[2].partition(")")[0].partition(", ")
    length = {"5": 4, "17": 16}.get(width)
    return (
        fault
        if length is None
        else fault.replace(f"({width}, {number})", str(ip_address(int(number).to_bytes(length, "big"))), 1)
    )


ALLOW = rule()


def test_a_single_change_is_safe() -> None:
    assert not fault_of(table(ALLOW, ONE), step(ALLOW, remove=[ONE]))
    assert not fault_of({}, step(ALLOW, [ONE]))
    assert not fault_of({})


@pytest.mark.parametrize(
    ("wide", "halves", "missing"),
    [
        ("10.0.0.0/31", ("10.0.0.0/32", "10.0.0.1/32"), "10.0.0.1"),
        ("10.0.0.0/24", ("10.0.0.0/25", "10.0.0.128/25"), "10.0.0.128"),
        ("0.0.0.0/0", ("0.0.0.0/1", "128.0.0.0/1"), "128.0.0.0"),
        ("fd00::/64", ("fd00::/65", "fd00::8000:0:0:0/65"), "fd00::8000:0:0:0"),
    ],
)
def test_a_prefix_may_be_split_if_no_half_is_missing(wide: str, halves: tuple[str, str], missing: str) -> None:
    first, second = halves
    before = table(ALLOW, wide)
    assert not fault_of(before, step(ALLOW, halves), step(ALLOW, remove=[wide]))
    assert not fault_of(before, step(ALLOW, halves, [wide]))
    late = fault_of(before, step(ALLOW, [first], [wide]), step(ALLOW, [second]))
    assert late == f"after 2 of 3 changes source {ip_address(missing)} gets the verdict deny for ('other', 0)"


def test_an_address_of_the_other_family_does_not_cover() -> None:
    before = table(ALLOW, "0.0.0.1/32", "::1/128")
    gap = fault_of(before, step(ALLOW, remove=["0.0.0.1/32"]), step(ALLOW, ["0.0.0.1/32"]))
    assert gap == "after 1 of 2 changes source 0.0.0.1 gets the verdict deny for ('other', 0)"


def test_a_prefix_does_not_cover_the_next_address() -> None:
    before = table(ALLOW, "10.0.0.0/32", ONE)
    gap = fault_of(before, step(ALLOW, remove=[ONE]), step(ALLOW, [ONE]))
    assert gap == "after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('other', 0)"


def test_the_first_matching_rule_decides_at_every_step() -> None:
    """A drop may be added before the allow below it. A packet that both tables drop is dropped at every step."""
    drop = rule("drop", priority=9)
    assert not fault_of({}, step(drop, [ONE]), step(ALLOW, [ONE]))
    assert fault_of({}, step(ALLOW, [ONE]), step(drop, [ONE])) == (
        "after 1 of 2 changes source 10.0.0.1 gets the verdict allow for ('other', 0)"
    )
    moved = rule("drop", priority=8)
    before = table(ALLOW, ONE) | table(drop, ONE)
    assert not fault_of(before, step(moved, [ONE]), step(drop, remove=[ONE]))
    assert fault_of(before, step(drop, remove=[ONE]), step(moved, [ONE]))


TCP, LATER = rule("allow", "tcp"), rule("allow", "tcp", priority=1)


@pytest.mark.parametrize(
    ("whole", "part", "missing"),
    [
        pytest.param(TCP, (1, 65_535), 0, id="the first port"),
        pytest.param(TCP, (0, 90), 91, id="a port after the last one"),
        pytest.param(TCP, (0, 79, 81, 65_535), 80, id="a port between two ranges"),
        pytest.param(rule("allow", "tcp", 80, 90), (81, 90), 80, id="the first port of a range"),
        pytest.param(rule("allow", "tcp", 80, 90), (80, 89), 90, id="the last port of a range"),
        pytest.param(rule("allow", "tcp", 10, 20, 30, 40), (10, 20), 30, id="the second range"),
        pytest.param(rule("allow", "tcp", 10, 20, 30, 40, 50, 60), (10, 20, 30, 40), 50, id="the third range"),
    ],
)
def test_no_port_may_be_missing_at_any_step(whole: Rule, part: tuple[int, ...], missing: int) -> None:
    stays, later = rule("allow", "tcp", *part), LATER._replace(ports=whole.ports)
    before = table(whole, ONE) | table(stays, ONE)
    assert not fault_of(before, step(later, [ONE]), step(whole, remove=[ONE]))
    assert fault_of(before, step(whole, remove=[ONE]), step(later, [ONE])) == (
        f"after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('tcp', {missing})"
    )


def test_a_protocol_that_no_rule_names_is_checked() -> None:
    before = table(ALLOW, ONE) | table(TCP, ONE) | table(rule("allow", "udp"), ONE)
    again = rule(priority=1)
    assert not fault_of(before, step(again, [ONE]), step(ALLOW, remove=[ONE]))
    assert fault_of(before, step(ALLOW, remove=[ONE]), step(again, [ONE])) == (
        "after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('other', 0)"
    )


def test_a_rule_for_one_protocol_does_not_cover_another() -> None:
    udp, again = rule("allow", "udp"), rule("allow", "udp", priority=1)
    before = table(TCP, ONE) | table(udp, ONE)
    assert fault_of(before, step(udp, remove=[ONE]), step(again, [ONE])) == (
        "after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('udp', 0)"
    )

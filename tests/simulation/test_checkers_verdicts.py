"""Sequences of steps between two tables; for each unsafe one, the packet with a verdict of neither table."""

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


def judged(before: Table, *steps: SetStep) -> str:
    """The faults on the way, with the address as text."""
    fault = unsafe(before, steps)
    width, _, number = fault.partition("(")[2].partition(")")[0].partition(", ")
    length = {"5": 4, "17": 16}.get(width)
    return (
        fault
        if length is None
        else fault.replace(f"({width}, {number})", str(ip_address(int(number).to_bytes(length, "big"))), 1)
    )


ALLOW = rule()


def test_one_change_is_its_own_way() -> None:
    assert not judged(table(ALLOW, ONE), step(ALLOW, remove=[ONE]))
    assert not judged({}, step(ALLOW, [ONE]))
    assert not judged({})


@pytest.mark.parametrize(
    ("wide", "halves", "missed"),
    [
        ("10.0.0.0/31", ("10.0.0.0/32", "10.0.0.1/32"), "10.0.0.1"),
        ("10.0.0.0/24", ("10.0.0.0/25", "10.0.0.128/25"), "10.0.0.128"),
        ("0.0.0.0/0", ("0.0.0.0/1", "128.0.0.0/1"), "128.0.0.0"),
        ("fd00::/64", ("fd00::/65", "fd00::8000:0:0:0/65"), "fd00::8000:0:0:0"),
    ],
)
def test_a_prefix_may_be_halved_but_no_half_may_be_missing(wide: str, halves: tuple[str, str], missed: str) -> None:
    first, second = halves
    had = table(ALLOW, wide)
    assert not judged(had, step(ALLOW, halves), step(ALLOW, remove=[wide]))
    assert not judged(had, step(ALLOW, halves, [wide]))
    late = judged(had, step(ALLOW, [first], [wide]), step(ALLOW, [second]))
    assert late == f"after 2 of 3 changes source {ip_address(missed)} gets the verdict deny for ('other', 0)"


def test_what_another_family_has_by_the_same_number_does_not_help() -> None:
    had = table(ALLOW, "0.0.0.1/32", "::1/128")
    gap = judged(had, step(ALLOW, remove=["0.0.0.1/32"]), step(ALLOW, ["0.0.0.1/32"]))
    assert gap == "after 1 of 2 changes source 0.0.0.1 gets the verdict deny for ('other', 0)"


def test_an_address_behind_a_prefix_is_not_in_it() -> None:
    had = table(ALLOW, "10.0.0.0/32", ONE)
    gap = judged(had, step(ALLOW, remove=[ONE]), step(ALLOW, [ONE]))
    assert gap == "after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('other', 0)"


def test_the_rule_that_goes_first_decides_at_every_step() -> None:
    """A drop above an allow may be added before it; a packet dropped before and after stays dropped on the way."""
    drop = rule("drop", priority=9)
    assert not judged({}, step(drop, [ONE]), step(ALLOW, [ONE]))
    assert judged({}, step(ALLOW, [ONE]), step(drop, [ONE])) == (
        "after 1 of 2 changes source 10.0.0.1 gets the verdict allow for ('other', 0)"
    )
    moved = rule("drop", priority=8)
    had = table(ALLOW, ONE) | table(drop, ONE)
    assert not judged(had, step(moved, [ONE]), step(drop, remove=[ONE]))
    assert judged(had, step(drop, remove=[ONE]), step(moved, [ONE]))


TCP, LATER = rule("allow", "tcp"), rule("allow", "tcp", priority=1)


@pytest.mark.parametrize(
    ("whole", "part", "missed"),
    [
        pytest.param(TCP, (1, 65_535), 0, id="the first port of all"),
        pytest.param(TCP, (0, 90), 91, id="what is behind the last one"),
        pytest.param(TCP, (0, 79, 81, 65_535), 80, id="a hole"),
        pytest.param(rule("allow", "tcp", 80, 90), (81, 90), 80, id="the first one of a range"),
        pytest.param(rule("allow", "tcp", 80, 90), (80, 89), 90, id="the last one of a range"),
        pytest.param(rule("allow", "tcp", 10, 20, 30, 40), (10, 20), 30, id="a range"),
        pytest.param(rule("allow", "tcp", 10, 20, 30, 40, 50, 60), (10, 20, 30, 40), 50, id="a third range"),
    ],
)
def test_no_port_may_be_missing_on_the_way(whole: Rule, part: tuple[int, ...], missed: int) -> None:
    stays, later = rule("allow", "tcp", *part), LATER._replace(ports=whole.ports)
    had = table(whole, ONE) | table(stays, ONE)
    assert not judged(had, step(later, [ONE]), step(whole, remove=[ONE]))
    assert judged(had, step(whole, remove=[ONE]), step(later, [ONE])) == (
        f"after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('tcp', {missed})"
    )


def test_a_protocol_that_no_rule_names_is_judged_too() -> None:
    had = table(ALLOW, ONE) | table(TCP, ONE) | table(rule("allow", "udp"), ONE)
    again = rule(priority=1)
    assert not judged(had, step(again, [ONE]), step(ALLOW, remove=[ONE]))
    assert judged(had, step(ALLOW, remove=[ONE]), step(again, [ONE])) == (
        "after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('other', 0)"
    )


def test_what_one_protocol_has_does_not_help_another() -> None:
    udp, again = rule("allow", "udp"), rule("allow", "udp", priority=1)
    had = table(TCP, ONE) | table(udp, ONE)
    assert judged(had, step(udp, remove=[ONE]), step(again, [ONE])) == (
        "after 1 of 2 changes source 10.0.0.1 gets the verdict deny for ('udp', 0)"
    )

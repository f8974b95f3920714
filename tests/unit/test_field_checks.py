"""Every rule for names, labels and addresses at its limits, and the text of its refusal."""

from __future__ import annotations

import ast
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.field_checks import (
    MAX_LABELS,
    BadAddress,
    are_plain_names,
    check_address4,
    check_address6,
    check_clique,
    check_label_key,
    check_labels,
    check_name,
    check_text,
    check_uid,
    check_zone,
    is_printable,
    parse_address,
    quoted,
)

Check = Callable[[str, str], str | None]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_name, "n"),
        (check_name, "a" * 253),
        (check_name, "s" * 63 + "/" + "a" * 253),
        (check_name, "openb-node-0000"),
        (check_name, "Rack_1.u-2"),
        (check_zone, "z" * 63),
        (check_clique, "9f410827-489f-46fd-8203-51266ca08eb7.32766"),
        (check_clique, "c" * 128),
        (check_label_key, "p" * 253 + "/" + "k" * 63),
        (check_label_key, "gpu"),
        (check_text, ""),
        (check_text, "Grace Hopper, 2 Stück"),
    ],
)
def test_valid_values_are_accepted(check: Check, value: str) -> None:
    assert check("field", value) is None


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_name, ""),
        (check_name, "a" * 254),
        (check_name, "a/b/c"),
        (check_name, "/b"),
        (check_name, "a/"),
        (check_name, "s" * 64 + "/a"),
        (check_name, "a b"),
        (check_name, "n\n"),
        (check_name, "-flag"),
        (check_name, "nöde"),
        (check_zone, "z" * 64),
        (check_zone, "a/b"),
        (check_clique, "c" * 129),
        (check_clique, ""),
        (check_label_key, "k" * 64),
        (check_label_key, "GPU type"),
        (check_text, "two\nlines"),
        (check_text, "x" * 254),
        (check_text, "\ud800"),
    ],
)
def test_invalid_values_are_refused_with_field_value_and_rule(check: Check, value: str) -> None:
    fault = check("spec.field", value)
    assert fault is not None
    assert fault.startswith("spec.field: ")
    assert quoted(value[:60]) in fault
    assert "must be" in fault
    assert "\n" not in fault
    assert len(fault) < 400


def test_labels_are_refused_with_the_first_fault_in_key_order() -> None:
    assert check_labels("labels", {"a": "1", "b/c": ""}) is None
    fault = check_labels("labels", {"z": "bad\n", "b": "bad\t", "a": "fine"})
    assert fault is not None
    assert fault.startswith("labels[b]: 'bad\\t'")
    key_fault = check_labels("labels", {"a b": "1"})
    assert key_fault is not None
    assert key_fault.startswith("labels key: 'a b'")


def test_too_many_labels_are_refused() -> None:
    labels = {f"k{i}": "" for i in range(MAX_LABELS)}
    assert check_labels("labels", labels) is None
    assert check_labels("labels", {**labels, "one-more": ""}) == "labels: 129 labels are more than the 128 allowed"


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1", "0.0.0.1", "126.255.255.255", "128.0.0.0", "223.255.255.255", "240.0.0.1", "2001:db8::1", "::2"],
)
def test_addresses_of_hosts_are_accepted(text: str) -> None:
    assert str(parse_address("address", text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0",
        "127.0.0.2",
        "127.255.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
    ],
)
def test_addresses_that_are_not_of_a_host_are_refused(text: str) -> None:
    with pytest.raises(BadAddress, match="must be a host address, not unspecified, loopback, multicast or broadcast"):
        parse_address("address", text)


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.0.256", "010.0.0.1", "10.0.0.1/24", "fe80::1%eth0", "::ffff:1.2.3.4"]
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(BadAddress, match=r"^address: '.*' (must be|is) "):
        parse_address("address", text)


def test_the_refusal_of_an_address_has_the_same_text_in_every_python_version() -> None:
    """Replicas store reasons. Python 3.13 prints an IPv4 address in IPv6 form differently from Python 3.11."""
    for low, text in ((0x0A000001, "::ffff:a00:1"), (0x0A000000, "::ffff:a00:0"), (0, "::ffff:0:0")):
        fault = f"a: {text!r} is an IPv4 address in IPv6 form and must be given as IPv4"
        assert check_address6("a", 0xFFFF << 32 | low) == fault


def test_printable_characters_are_the_same_in_every_python_version() -> None:
    """A character of Unicode 15 is printable in Python 3.13 but not in 3.11, so folds once decided differently."""
    refused = [number for number in range(0x110000) if not is_printable(chr(number))]
    assert (len(refused), sum(refused)) == (139_762, 138_029_289_590)
    assert check_text("image", "caf\xe9 \U0001fae8") is None
    assert check_text("image", "\xe9\n") == "image: 'é\\n' must be at most 253 printable characters on one line"
    assert check_labels("labels", {"team": "\U0001fae8"}) is None
    assert check_labels("labels", {"team": "\xe9\u200b"}) is not None
    assert quoted("\xe9\U0001fae8\n") == "'\xe9\U0001fae8\\n'"
    assert quoted("\xe9" * 61) == "'" + "\xe9" * 60 + "'... (61 characters)"


def test_integers_outside_ipv4_are_refused() -> None:
    assert check_address4("a", -1) is not None
    assert check_address4("a", 1 << 32) is not None


@given(st.integers(0, (1 << 32) - 1))
def test_ipv4_rule_agrees_with_the_standard_library(value: int) -> None:
    address = IPv4Address(value)
    unusable = address.is_unspecified or address.is_loopback or address.is_multicast or value == 0xFFFFFFFF
    assert (check_address4("a", value) is not None) == unusable


@given(st.one_of(st.ip_addresses(), st.text()))
def test_parsing_raises_only_its_own_error(value: object) -> None:
    try:
        address = parse_address("address", str(value))
    except BadAddress:
        return
    assert isinstance(address, IPv4Address | IPv6Address)


@given(st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,4}){3}\n?", fullmatch=True))
def test_dotted_text_is_an_address_exactly_if_the_standard_library_agrees(text: str) -> None:
    try:
        found = parse_address("address", text)
    except BadAddress as error:
        if "IPv4 or IPv6" in str(error):
            with pytest.raises(AddressValueError):
                IPv4Address(text)
        else:
            assert check_address4("address", int(IPv4Address(text))) == str(error)
    else:
        assert found == IPv4Address(text)


def test_a_uid_is_short_ascii_or_empty() -> None:
    assert check_uid("uid", "") is None
    assert check_uid("uid", "0f2c7e66-4ea1-11ef-a3d5-0242ac120002") is None
    for bad in ("u" * 129, "ü", "a\n"):
        fault = check_uid("uid", bad)
        assert fault is not None
        assert fault.startswith("uid: ")


LETTERS = st.sampled_from("aZ09._-/\n é")


@given(st.integers(1, 70).flatmap(lambda width: st.lists(st.text(LETTERS, min_size=width, max_size=width), min_size=1)))
def test_names_that_pass_the_bulk_check_are_valid(names: list[str]) -> None:
    lines = "".join(f"{name}\n" for name in names)
    assert not are_plain_names(lines, len(names)) or all(
        check_name("names", name) is None for name in lines.split("\n")[:-1]
    )
    assert not are_plain_names(lines, len(names)) or lines.count("\n") == len(names)


@given(st.integers(1, 63).flatmap(lambda width: st.lists(st.text("aZ09", min_size=width, max_size=width), min_size=1)))
def test_plain_names_of_one_length_pass_the_bulk_check(names: list[str]) -> None:
    assert are_plain_names("".join(f"{name}\n" for name in names), len(names))


def test_names_of_several_lengths_or_with_a_source_need_the_single_check() -> None:
    assert not are_plain_names("a\nbb\n", 2)
    assert not are_plain_names("s/a\n", 1)
    assert not are_plain_names("a" * 64 + "\n", 1)
    assert not are_plain_names("\n\n", 2)
    assert not are_plain_names(".a\n-b\n", 2)


def test_a_quoted_value_is_escaped_only_where_it_is_not_printable() -> None:
    assert quoted("zürich-機架") == "'zürich-機架'"
    assert quoted("a\u202eb\n\x1b[1mü\xa0") == r"'a\u202eb\n\x1b[1mü\xa0'"
    assert quoted("it's ü") == '"it\'s ü"'
    assert quoted("ü" * 61).startswith("'" + "ü" * 60 + "'... (61 ")


@given(st.text(max_size=60))
def test_a_quoted_value_is_printable_and_parses_to_itself(text: str) -> None:
    assert is_printable(quoted(text))
    assert ast.literal_eval(quoted(text)) == text

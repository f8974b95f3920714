"""Checks of fields: the rules for names, labels and addresses. Edges and folds share one rule per field.

An edge checks a request before it appends anything. A fold checks again, because other programs may write to its topic.
Both must give the same answer for the same value, so both use the rules of this module. Each `check_*` returns None, or
one sentence that names the field, the value and the rule.

Names and label keys follow Kubernetes' alphabets (upper case allowed), so every Kubernetes name fits, and "/" separates
parts of a key without escaping.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from eventstore.errors import PermanentError

MAX_LABELS = 128
"""Maximum number of labels of one node or zone: bounds the size of a record's item."""

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]"
_MORE = "[A-Za-z0-9._-]"
NAME_PATTERN = rf"{_WORD}{{0,62}}+(?:/{_WORD}{{0,252}}+|{_MORE}{{0,190}}+)"
"""One name as a regular expression, for checks of a whole column at once; it does not backtrack."""
_NAME = re.compile(NAME_PATTERN)
_LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHORT = 63
"""Maximum number of characters of a name for which a check of the alphabet is enough."""
_ZONE = re.compile(rf"{_WORD}{{0,62}}")
_CLIQUE = re.compile(rf"{_WORD}{{0,127}}")
_LABEL_KEY = re.compile(rf"{_WORD}{{0,62}}+(?:{_MORE}{{0,190}}+/{_WORD}{{0,62}}+)?")
_DOTTED = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u2064\u2066-\u206f\u3000\ud800-\uf8ff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U00013438"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\U000f0000-\U000ffffd"
    r"\U00100000-\U0010fffd]"
)
"""Code points of control, format, separator, surrogate and private-use characters. Python's own tables change with its
Unicode version, and replicas under different Python versions must decide alike."""
_LONGEST_VALUE = 253
MAX_AHEAD_MS = 60_000
"""Maximum time by which a creation time may be ahead of the log. An incarnation with a creation time in the next year
would otherwise supersede all others until then."""
LONGEST_UID = 128
"""Maximum number of bytes of a uid: a MembershipChanged has the uid of every node, even if the request had none."""
_LONGEST_QUOTED = 60
PATH_QUOTED = 255
"""Maximum number of characters of a path in an error message: long enough for the end, which identifies the file."""
MAX_NETWORKS = 64
"""Maximum number of networks of one zone: every address that a node agent sets is compared with all of them."""
_LONGEST_NETWORK = 43
"""Maximum number of characters of an IPv6 network."""
_MAPPED = 0xFFFF
"""Upper 96 bits of IPv4 addresses in IPv6 form."""
_ADDRESS4_BYTES = 4

_ALPHABET = "letters, digits, '.', '_' and '-', the first a letter or digit"


class BadAddress(PermanentError):
    """Text that is not an address a node can have."""


def is_utf8(text: str) -> bool:
    """Whether the text can be encoded. Bytes of a command line or variable that are not UTF-8 arrive as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def quoted(value: str, most: int = _LONGEST_QUOTED) -> str:
    """A value quoted for a sentence: verbatim, escaped where it is not printable, cut after `most` characters.

    `repr` escapes different characters in different Python versions. Every sentence that quotes input uses this
    function.
    """
    return _escaped(value) if len(value) <= most else f"{_escaped(value[:most])}... ({len(value)} characters)"


def _escaped(text: str) -> str:
    if text.isascii():
        return ascii(text)
    mark = '"' if "'" in text and '"' not in text else "'"
    escaped = text.replace("\\", "\\\\").replace(mark, f"\\{mark}")
    return f"{mark}{printable(escaped)}{mark}"


def printable(text: str) -> str:
    """A text in which what is not printable is escaped."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def is_printable(text: str) -> bool:
    """Whether text can stand on one line, by a rule that is the same in every Python version."""
    return text.isprintable() if text.isascii() else _UNPRINTABLE.search(text) is None


def check_name(field: str, value: str) -> str | None:
    """A node's or DPU's name: `name` or `source/name`."""
    if _NAME.fullmatch(value):
        return None
    return (
        f"{field}: {quoted(value)} must be 1 to 253 {_ALPHABET}, after an optional SOURCE/ of 1 to 63 such characters"
    )


def are_plain_names(lines: str, count: int) -> bool:
    """Check the common case, short names of equal length without a `SOURCE/` prefix, in a tenth of the time of
    `check_name`. True means that all are valid; False means that each name needs `check_name`."""
    width = len(lines) // count
    if not 1 < width <= _SHORT + 1 or width * count != len(lines) or not lines.isascii():
        return False
    text = lines.encode()
    return (
        text[width - 1 :: width].count(b"\n") == text.count(b"\n") == count
        and not text.translate(None, _LETTERS + b"._-\n")
        and not text[::width].translate(None, _LETTERS)
    )


def check_zone(field: str, value: str) -> str | None:
    """A zone's name."""
    return None if _ZONE.fullmatch(value) else f"{field}: {quoted(value)} must be 1 to 63 {_ALPHABET}"


def check_clique(field: str, value: str) -> str | None:
    """A domain's uid, or a clique's id."""
    return None if _CLIQUE.fullmatch(value) else f"{field}: {quoted(value)} must be 1 to 128 {_ALPHABET}"


def check_text(field: str, value: str, longest: int = _LONGEST_VALUE) -> str | None:
    """Free text on one line, possibly empty: a label's value, a uid, an image, a reason."""
    if _is_text(value, longest):
        return None
    return f"{field}: {quoted(value)} must be at most {longest} printable characters on one line"


def _is_text(value: str, longest: int = _LONGEST_VALUE) -> bool:
    return len(value) <= longest and is_printable(value)


def check_uid(field: str, value: str) -> str | None:
    """The uid of an incarnation, possibly empty."""
    if len(value) <= LONGEST_UID and value.isascii() and value.isprintable():
        return None
    return f"{field}: {quoted(value)} must be at most {LONGEST_UID} printable ASCII characters on one line"


def check_label_key(field: str, value: str) -> str | None:
    """A label's key: `key` or `prefix/key`."""
    if _LABEL_KEY.fullmatch(value):
        return None
    return (
        f"{field}: {quoted(value)} must be 1 to 63 {_ALPHABET}, after an optional PREFIX/ of 1 to 253 such characters"
    )


def check_label_count(field: str, count: int) -> str | None:
    """The number of labels of one node or zone."""
    return None if count <= MAX_LABELS else f"{field}: {count} labels are more than the {MAX_LABELS} allowed"


def check_labels(field: str, labels: Mapping[str, str]) -> str | None:
    """All labels of one node or zone; the first fault found, in key order."""
    if fault := check_label_count(field, len(labels)):
        return fault
    if all(map(_LABEL_KEY.fullmatch, labels)) and _are_values(labels.values()):
        return None
    if all(map(_LABEL_KEY.fullmatch, labels)) and all(map(_is_text, labels.values())):
        return None
    faults = (
        check_label_key(f"{field} key", key) or check_text(f"{field}[{key}]", labels[key]) for key in sorted(labels)
    )
    return next(filter(None, faults))


def _are_values(values: Collection[str]) -> bool:
    return not values or (is_printable("".join(values)) and max(map(len, values)) <= _LONGEST_VALUE)


def check_address4(field: str, value: int) -> str | None:
    """An IPv4 address, as an integer, that a node may have."""
    if 0 < value < 0xE0000000 and value >> 24 != 127:
        return None
    if 0xF0000000 <= value < 0xFFFFFFFF:
        return None
    return _unusable(field, str(IPv4Address(value)) if 0 <= value <= 0xFFFFFFFF else str(value))


def check_address6(field: str, value: int) -> str | None:
    """An IPv6 address, as an integer, that a node may have."""
    if not 0 <= value < 1 << 128:
        return _unusable(field, str(value))
    if value >> 32 == 0xFFFF:
        shown_address = f"::ffff:{value >> 16 & 0xFFFF:x}:{value & 0xFFFF:x}"  # Python 3.13 formats it differently
        return f"{field}: {shown_address!r} is an IPv4 address in IPv6 form and must be given as IPv4"
    if value in (0, 1) or value >> 120 == 0xFF:
        return _unusable(field, str(IPv6Address(value)))
    return None


def check_networks(field: str, networks: Sequence[str]) -> str | None:
    """The networks that the addresses of a zone's node agents come from."""
    if len(networks) > MAX_NETWORKS:
        return f"{field}: {len(networks)} networks are more than the {MAX_NETWORKS} allowed"
    faults = (f"{field}: {quoted(text)} must be a network such as 10.7.0.0/16 or fd00:7::/64" for text in networks)
    return next((fault for text, fault in zip(networks, faults, strict=True) if network(text) is None), None)


def check_label_keys(field: str, keys: Sequence[str]) -> str | None:
    """Why a list of label keys is invalid, in one sentence; None if it is valid."""
    if fault := check_label_count(field, len(keys)):
        return fault
    return next((fault for key in keys if (fault := check_label_key(field, key))), None)


@lru_cache(4_096)
def network(text: str) -> IPv4Network | IPv6Network | None:
    """A network in the one spelling that the log allows; None for any other text."""
    try:
        found = ip_network(text) if len(text) <= _LONGEST_NETWORK else None
    except ValueError:
        return None
    if isinstance(found, IPv6Network) and int(found.network_address) >> 32 == _MAPPED:
        return None  # IPv4 addresses in IPv6 form; Python 3.13 formats them differently
    return found if str(found) == text else None


def parse_address(field: str, text: str) -> IPv4Address | IPv6Address:
    """Text as an address that a node may have. Raises BadAddress."""
    return ip_address(packed_address(field, text))


def canonical_address(field: str, text: str) -> str:
    """The address in the spelling that the log uses, so that equal addresses are equal text. Raises BadAddress."""
    packed = packed_address(field, text)
    return text if _DOTTED.fullmatch(text) else str(ip_address(packed))


def packed_address(field: str, text: str) -> bytes:
    """The address in 4 bytes (IPv4) or 16 bytes (IPv6). Raises BadAddress."""
    try:
        packed = bytes(map(int, text.split("."))) if _DOTTED.fullmatch(text) else _packed(field, text)
    except ValueError:
        raise BadAddress(f"{field}: {quoted(text)} must be an IPv4 or IPv6 address") from None
    check = check_address4 if len(packed) == _ADDRESS4_BYTES else check_address6
    fault = check(field, int.from_bytes(packed, "big"))
    if fault is not None:
        raise BadAddress(fault)
    return packed


def _packed(field: str, text: str) -> bytes:
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise BadAddress(f"{field}: {quoted(text)} must be an address without an interface scope")
    return address.packed


def _unusable(field: str, shown_address: str) -> str:
    return f"{field}: {shown_address!r} must be a host address, not unspecified, loopback, multicast or broadcast"

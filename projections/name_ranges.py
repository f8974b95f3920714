"""Names in the compact form of Slurm's host lists: `rack-7-node-[001-018,020]`.

Names that differ only in their last number share one entry. An entry with leading zeros lists only numbers of one
width. In an entry without leading zeros, the width of the numbers varies.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)


def fold_names(names: Iterable[str]) -> list[str]:
    """The entries that list exactly these names, sorted."""
    numbers: defaultdict[tuple[str, int, str], set[int]] = defaultdict(set)
    entries: set[str] = set()
    for name in names:
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            entries.add(name)
            continue
        prefix, digits, suffix = match.groups()
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        numbers[prefix, width, suffix].add(int(digits))
    _share_widths(numbers)
    for (prefix, width, suffix), found in numbers.items():
        parts = [_part(first, last, width) for first, last in _runs(sorted(found))]
        is_single = len(parts) == 1 and "-" not in parts[0]
        entries.add(f"{prefix}{parts[0]}{suffix}" if is_single else f"{prefix}[{','.join(parts)}]{suffix}")
    return sorted(entries)


def _share_widths(numbers: dict[tuple[str, int, str], set[int]]) -> None:
    """Move numbers without leading zeros into a padded entry of the same width: 100 joins 001 to 099."""
    for prefix, width, suffix in [key for key in numbers if key[1]]:
        free = numbers.get((prefix, 0, suffix), set())
        full = {number for number in free if len(str(number)) == width}
        numbers[prefix, width, suffix] |= full
        free -= full
    for key in [key for key, found in numbers.items() if not found]:
        del numbers[key]


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _part(first: int, last: int, width: int) -> str:
    return f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"

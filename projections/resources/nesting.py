"""The depth of JSON text, measured without recursion.

Parsers and functions on JSON values call themselves once for each level, and Python's limit counts the frames of the
caller too. So whether a parser takes a deep text depends on the place of the call, which differs between replicas. A
fold must measure the depth before it parses.
"""

from __future__ import annotations

import re

NESTING_MAX = 100
"""Maximum depth of objects and lists in a spec."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\[\s\S])*+"?|[\[{]|[\]}]')
"""A text, also one without an end: a search for the end from each of its quotes would take quadratic time."""


def is_nested_deeply(text: str) -> bool:
    """Whether objects and lists of a text, which need not be JSON, are nested more than NESTING_MAX levels deep."""
    if text.count("{") + text.count("[") <= NESTING_MAX:
        return False
    depth = 0
    for found in _TOKEN.finditer(text):
        if (token := found[0]) in "[{":
            depth += 1
            if depth > NESTING_MAX:
                return True
        elif token in "]}":
            depth -= 1
    return False

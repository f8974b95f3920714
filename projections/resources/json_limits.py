"""Limits of JSON text, measured before it is parsed.

A parser must accept the same text on every replica. Python's limit of recursion counts the frames of the caller too,
so a deep text parses at one place of the code and not at another. Its limit for the digits of an integer is a setting
of the process (PYTHONINTMAXSTRDIGITS). The limits here are far below both, and measured without recursion.
"""

from __future__ import annotations

import re

NESTING_MAX = 100
"""Maximum depth of objects and lists in a spec."""
DIGITS_MAX = 64
"""Maximum number of consecutive digits of a number in a spec. Fields of Kubernetes have at most 19."""

_LONG_NUMBER = re.compile(rf"[0-9]{{{DIGITS_MAX + 1}}}")
_TOKEN = re.compile(rf'"(?:[^"\\]|\\[\s\S])*+"?|[\[{{]|[\]}}]|{_LONG_NUMBER.pattern}')
"""A text, also one without an end: a search for the end from each of its quotes would take quadratic time."""


def fault_of_limits(text: str) -> str | None:
    """Why a text, which need not be JSON, is over these limits; None if it is within them."""
    if text.count("{") + text.count("[") <= NESTING_MAX and _LONG_NUMBER.search(text) is None:
        return None
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "[{":
            depth += 1
            if depth > NESTING_MAX:
                return f"objects and lists are nested more than {NESTING_MAX} levels deep"
        elif token in "]}":
            depth -= 1
        elif token[0] != '"':
            return f"a number has more than {DIGITS_MAX} digits"
    return None

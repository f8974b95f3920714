"""The definition of a fuzz target: bytes go in, and are accepted or refused with a sentence. Any other result is a
finding.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

SENTENCE_MAX = 2_000
"""Characters of a refusal at most: it quotes values cut, whatever was sent."""

Mutate = Callable[[bytes, Random, Callable[[bytes], bytes]], bytes]
"""From an input to another; the last argument changes some bytes, in whatever way the fuzzer finds promising."""


class Target(NamedTuple):
    """`run` returns whether the input was accepted, and raises if a property does not hold."""

    name: str
    run: Callable[[bytes], bool]
    mutate: Mutate | None = None
    max_bytes: int = 4_096


def check_refusal(refusal: object) -> None:
    """A refusal is one printable sentence whose length does not grow with the input."""
    from projections.field_checks import is_printable  # import only after the fuzzer has instrumented the module

    text = str(refusal)
    assert text, f"{refusal!r} says nothing"
    assert len(text) <= SENTENCE_MAX, f"{len(text)} characters: {text[:200]}"
    assert is_printable(text), f"not one printable line: {text!r}"

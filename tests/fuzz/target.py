"""The definition of a fuzz target. It accepts bytes, or refuses them with a sentence. Any other result is a finding."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

SENTENCE_MAX = 2_000
"""The maximum length of a refusal, which quotes long values shortened."""

Mutate = Callable[[bytes, Random, Callable[[bytes], bytes]], bytes]
"""Makes a new input from an input. The last argument lets libFuzzer change some bytes."""


class Target(NamedTuple):
    """`run` returns whether the input was accepted, and raises if a property does not hold."""

    name: str
    run: Callable[[bytes], bool]
    mutate: Mutate | None = None
    max_bytes: int = 4_096


def check_refusal(refusal: object) -> None:
    """Assert that a refusal is one printable sentence of bounded length."""
    from projections.field_checks import is_printable  # import here, after the fuzzer has instrumented the module

    text = str(refusal)
    assert text, f"{refusal!r} is empty"
    assert len(text) <= SENTENCE_MAX, f"{len(text)} characters: {text[:200]}"
    assert is_printable(text), f"not one printable line: {text!r}"

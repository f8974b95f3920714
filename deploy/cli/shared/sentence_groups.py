"""Groups sentences that differ in one name only: 400 DPUs that lack the same table are one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMED = 5
_SUBJECT = re.compile(r"(dpu|node|clique|zone) (\S+)(.*)", re.DOTALL)
"""The parts of a sentence: a kind, a name, and the rest."""


def group_sentences(sentences: Iterable[str]) -> list[str]:
    """One sentence per group, in the order in which the groups begin. Each sentence counts the other subjects of its
    group and names some of them."""
    groups: dict[tuple[str, str], list[str]] = {}
    for sentence in sentences:
        found = _SUBJECT.fullmatch(sentence)
        kind, name, said = found.groups() if found else ("", "", sentence)
        groups.setdefault((kind, said), []).append(name)
    return [_one(kind, said, names) for (kind, said), names in groups.items()]


def _one(kind: str, said: str, names: list[str]) -> str:
    sentence = f"{kind} {names[0]}{said}" if kind else said
    others = len(names) - 1
    if not others:
        return sentence
    if not kind:
        return f"{sentence} ({len(names):,} times)"
    more = f" and {others - _NAMED:,} more" if others > _NAMED else ""
    return f"{sentence}; the same of {others:,} more: {', '.join(names[1 : 1 + _NAMED])}{more}"

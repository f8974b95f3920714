"""Whether a document is plain data, as JSON can write it: what a YAML file contains need not be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from schemas.resources.faults import Fault
from schemas.resources.structure import joined

DEPTH_MAX = 64
"""Maximum depth of nested lists and objects. Kinds need up to 20; the values of a Helm chart may need more."""
INTEGER_MAX = 2**63 - 1


def unplain_faults(value: Any, path: str = "", depth: int = 0) -> Iterator[Fault]:
    """The parts of a value that JSON cannot write or an API server cannot read."""
    if isinstance(value, dict | list) and depth == DEPTH_MAX:
        yield Fault(path, f"must have at most {DEPTH_MAX} levels of lists and objects")
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and _is_text(key):
                yield from unplain_faults(item, joined(path, key), depth + 1)
            else:
                yield Fault(path, f"must have texts as keys; quote the key {key!a}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from unplain_faults(item, f"{path}[{at}]", depth + 1)
    elif (sentence := _sentence(value)) is not None:
        yield Fault(path, sentence)


def _sentence(value: Any) -> str | None:
    """The fault of a single value."""
    match value:
        case str():
            return None if _is_text(value) else "must be valid Unicode"
        case None | bool():
            return None
        case int():
            return None if -INTEGER_MAX - 1 <= value <= INTEGER_MAX else "must fit into 64 bits"
        case float():
            return None if math.isfinite(value) else "must be a finite number"
        case _:
            return f"must be a text, a number, a list or an object, not a {type(value).__name__}: quote it"


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)

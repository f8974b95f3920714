"""Values of templates: their truth and their text, as in Go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.resources.go_templates.syntax import TemplateFault

INTEGER_BITS_MAX = 64


def is_true(value: Any) -> bool:
    """Whether a value is neither zero nor empty."""
    return bool(value)


def text_of(value: Any) -> str:
    """The text of a value where it is inserted. Raises TemplateFault for nil."""
    match value:
        case None:
            raise TemplateFault("a value that is inserted is nil")
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            if value.bit_length() > INTEGER_BITS_MAX:
                raise TemplateFault(f"a number has more than {INTEGER_BITS_MAX} bits")
            return str(value)
        case float():
            return _float_text(value)
        case Mapping():
            return "map[" + " ".join(f"{key}:{_inner(value[key])}" for key in sorted(value)) + "]"
        case list() | tuple():
            return "[" + " ".join(map(_inner, value)) + "]"
        case _:
            raise TemplateFault("a value that is inserted has no text")


def _inner(value: Any) -> str:
    return "<nil>" if value is None else text_of(value)


def _float_text(value: float) -> str:
    """Go writes the shortest text, with an exponent of at least two digits from 1e21 on and below 1e-4."""
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return repr(value)

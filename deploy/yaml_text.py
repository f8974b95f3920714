"""YAML (or JSON, which is YAML) that people wrote: plain data, or one sentence.

PyYAML raises its own error for bad syntax only. For a date that is none, a number of thousands of digits or a tag that
does not fit its value, whatever its constructor ran into comes out.
"""

from __future__ import annotations

from typing import Any

import yaml

_SHOWN = 500


class NotYaml(ValueError):
    """Text that is no YAML; why not, on one line."""


def documents_of(text: str) -> list[Any]:
    """The documents of a text. Raises NotYaml."""
    try:
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        words = " ".join(str(error).split())
        printable = "".join(letter if letter.isprintable() else "?" for letter in words[:_SHOWN])
        raise NotYaml(printable or type(error).__name__) from error

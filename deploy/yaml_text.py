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


class _Loader(yaml.SafeLoader):
    """A key is given once in a mapping, as YAML says. PyYAML takes the last of two, and says nothing of the other."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise NotYaml(f"{key.value[:_SHOWN]!r} is given twice, again in line {key.start_mark.line + 1}")
            seen.add((key.tag, key.value))
        return node


def documents_of(text: str) -> list[Any]:
    """The documents of a text. Raises NotYaml."""
    try:
        return list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        words = " ".join(str(error).split())
        printable = "".join(letter if letter.isprintable() else "?" for letter in words[:_SHOWN])
        raise NotYaml(printable or type(error).__name__) from error

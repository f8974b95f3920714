"""Parses YAML (or JSON, which is YAML) from files of users into plain data; an error is one sentence.

The text, its nesting and its nodes are bounded before any value is built. An alias (`*NAME`) repeats a node, so a short
text may have a huge value: to check and quote 480 bytes of nested aliases took 40 s and 1.6 GB. An alias therefore
counts as all the nodes that it repeats. PyYAML has no limits of its own, and pydantic sees the values only after they
are built.

A sentence names the line and the rule, and quotes no text: the file may contain secrets and be named by mistake, and
the snippets in PyYAML's messages would print them. PyYAML raises its own error for bad syntax only. It passes on any
other exception of the code that constructs a value: for a date that does not exist, for a number of thousands of
digits, or for a tag that does not fit its value.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from projections.field_checks import quoted

CHARACTERS_MAX = 1 << 20
"""Maximum number of characters of one text: 1 KiB for each of a thousand policies."""
NODES_MAX = 100_000
"""Maximum number of keys, values, lists and mappings of one text, with aliases expanded. PyYAML builds about 30,000 per
second."""
DEPTH_MAX = 32
"""Maximum depth of nested lists and mappings. Settings need 1 and policies 4."""

_CONSTRUCTOR_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
_DECIMAL = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
}
"""The patterns of PyYAML without numbers of base 60, such as 10:30. kubectl reads them as text."""
_QUOTED_NAME = re.compile(r"\b(tag|handle|alias|anchor) ['\"].*")


class NotYaml(ValueError):
    """Text that is not accepted as YAML; the reason is one line and quotes only names of keys."""


class _Loader(yaml.SafeLoader):
    """Refuses a text with more nodes or deeper nesting than the limits, or with duplicate keys in a mapping. YAML
    forbids duplicate keys, but PyYAML uses the last of two keys and does not report the other.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0
        self._sizes: dict[str, int] = {}
        """Number of nodes under each anchor whose node is complete."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line, before = event.start_mark.line + 1, self._nodes
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor not in self._sizes:
            raise NotYaml(f"line {line}: an alias must name an anchor that is complete before it")
        self._nodes += self._sizes[event.anchor] if is_alias else 1
        self._depth += 1
        if self._nodes > NODES_MAX:
            raise NotYaml(f"line {line}: the text must have at most {NODES_MAX} keys and values, with aliases expanded")
        if self._depth > DEPTH_MAX:
            raise NotYaml(f"line {line}: lists and mappings must be nested at most {DEPTH_MAX} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if event.anchor is not None:
            self._sizes[event.anchor] = self._nodes - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise NotYaml(f"{quoted(key.value)} is given twice, again in line {key.start_mark.line + 1}")
            seen.add((key.tag, key.value))
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (NotYaml, yaml.YAMLError):
            raise
        except _CONSTRUCTOR_ERRORS as error:
            line = node.start_mark.line + 1
            raise NotYaml(f"line {line}: the value does not match its tag, for example of a date") from error


# No field is a date, and a text such as 0000-04-00, the address of a device, looks like one that does not exist.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, _DECIMAL.get(tag, pattern)) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents_of(text: str) -> list[Any]:
    """The documents of a text. Raises NotYaml."""
    if len(text) > CHARACTERS_MAX:
        raise NotYaml(f"the text must have at most {CHARACTERS_MAX} characters")
    try:
        return list(yaml.load_all(text, _Loader))
    except NotYaml:
        raise
    except yaml.MarkedYAMLError as error:
        raise NotYaml(_words(error)) from error
    except yaml.reader.ReaderError as error:
        raise NotYaml(f"character {error.position + 1} is not allowed in YAML") from error
    except (yaml.YAMLError, *_CONSTRUCTOR_ERRORS) as error:
        raise NotYaml(f"the text cannot be read ({type(error).__name__})") from error


def _words(error: yaml.MarkedYAMLError) -> str:
    """The problem and its line, without the excerpts and names that PyYAML quotes from the text."""
    mark = error.problem_mark or error.context_mark
    line = f"line {mark.line + 1}: " if mark is not None else ""
    words = " ".join(str(error.problem or error.context or "bad syntax").split())
    return line + _QUOTED_NAME.sub(r"\1 that is not known", words).partition(": ")[0]

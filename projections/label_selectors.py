"""Label selectors in the syntax of Kubernetes: `tier=web,rack in (7,8),!old`.

A selector is a list of requirements, all of which must hold. `KEY!=VALUE` and `KEY notin (...)` also match labels
without the key, as in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from eventstore.errors import PermanentError
from projections.field_checks import check_label_key, quoted

CHARACTERS_MAX = 4_096
REQUIREMENTS_MAX = 64
"""Maximum number of requirements of one selector: a query for a list compares each item's labels with all of them."""

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s=!,()]+)
      | (?P<key>[^\s=!,()]+)\s*(?:
            (?P<equality>==|=|!=)\s*(?P<value>[^,()]*)
          | \s(?P<set>in|notin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FORMS = "KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, separated by commas"


class BadSelector(PermanentError):
    """Text that is not a selector; the message names the field and the requirement."""


class Requirement(NamedTuple):
    """The key must have one of `values`, or any value if `values` is None. If `negated`, the labels must not meet this
    rule."""

    key: str
    values: frozenset[str] | None
    negated: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        is_met = value is not None and (self.values is None or value in self.values)
        return is_met != self.negated


LabelSelector: TypeAlias = tuple[Requirement, ...]


def parse_selector(field: str, text: str) -> LabelSelector:
    """The requirements of a selector. Empty text has no requirements. Raises BadSelector."""
    if len(text) > CHARACTERS_MAX:
        raise BadSelector(f"{field}: {len(text)} characters are more than the {CHARACTERS_MAX} allowed")
    found: list[Requirement] = []
    start = 0
    while text and (start < len(text) or text.rstrip().endswith(",")):
        match = _REQUIREMENT.match(text, start)
        if match is None:
            raise BadSelector(f"{field}: {quoted(text[start:])} must be {_FORMS}")
        found.append(_requirement(field, match))
        start = match.end()
    if len(found) > REQUIREMENTS_MAX:
        raise BadSelector(f"{field}: {len(found)} requirements are more than the {REQUIREMENTS_MAX} allowed")
    return tuple(found)


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether labels meet all requirements of a selector."""
    return all(requirement.matches(labels) for requirement in selector)


def _requirement(field: str, match: re.Match[str]) -> Requirement:
    key: str = match["absent_key"] or match["key"]
    if fault := check_label_key(field, key):
        raise BadSelector(fault)
    if match["absent"] or (match["equality"] is None and match["set"] is None):
        return Requirement(key, None, negated=bool(match["absent"]))
    if match["equality"] is not None:
        return Requirement(key, frozenset((match["value"].strip(),)), negated=match["equality"] == "!=")
    values = frozenset(value.strip() for value in match["values"].split(","))
    return Requirement(key, values, negated=match["set"] == "notin")

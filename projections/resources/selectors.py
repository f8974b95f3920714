"""Label selectors of Kubernetes objects: matchLabels and matchExpressions.

A selector that is absent or empty matches everything, as in DPF's controllers. A selector that cannot be read matches
nothing: a set with a mistyped operator must not reinstall every DPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from projections.label_selectors import LabelSelector, Requirement, matches

_OPERATORS = {"In": False, "NotIn": True, "Exists": False, "DoesNotExist": True}
"""Each operator, and whether it is negated."""


def compiled(selector: Mapping[str, Any] | None) -> LabelSelector | str:
    """The requirements of a selector, or its first fault in one sentence."""
    if selector is None:
        return ()
    if fault := next((f"{field}: is not a field of a selector" for field in sorted({*selector} - _FIELDS)), None):
        return fault
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not isinstance(labels, Mapping) or not isinstance(expressions, list):
        return "matchLabels must be an object, and matchExpressions a list"
    found = []
    for key, value in sorted(labels.items()):
        if not isinstance(value, str):
            return f"matchLabels.{key}: the value must be text"
        found.append(Requirement(key, frozenset((value,)), negated=False))
    for number, expression in enumerate(expressions):
        requirement = _requirement(expression)
        if isinstance(requirement, str):
            return f"matchExpressions[{number}]: {requirement}"
        found.append(requirement)
    return tuple(found)


def of_labels(labels: Mapping[str, str] | None) -> LabelSelector:
    """The selector that demands these labels."""
    return tuple(Requirement(key, frozenset((value,)), negated=False) for key, value in sorted((labels or {}).items()))


def node_selects(selector: Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """Whether a NodeSelector selects a node with these labels. Without terms it selects every node. A term that cannot
    be read, or is empty, selects none."""
    terms = (selector or {}).get("nodeSelectorTerms")
    if not isinstance(terms, list) or not terms:
        return lambda labels: True
    readable = []
    for term in terms:
        found = compiled(term) if isinstance(term, Mapping) else ""
        if not isinstance(found, str) and found:
            readable.append(found)
    return lambda labels: any(matches(term, labels) for term in readable)


_FIELDS = frozenset(("matchLabels", "matchExpressions"))


def _requirement(expression: object) -> Requirement | str:
    if not isinstance(expression, Mapping) or not isinstance(key := expression.get("key"), str) or not key:
        return "a key is missing"
    operator, values = expression.get("operator"), expression.get("values") or []
    if not isinstance(operator, str) or operator not in _OPERATORS:
        return f"operator must be one of {', '.join(_OPERATORS)}"
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return "values must be a list of texts"
    if operator in ("In", "NotIn"):
        if not values:
            return f"values: operator {operator} needs at least one"
        return Requirement(key, frozenset(values), negated=_OPERATORS[operator])
    if values:
        return f"values: operator {operator} has none"
    return Requirement(key, None, negated=_OPERATORS[operator])

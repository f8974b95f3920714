"""What pydantic has against a value, in the words of every other refusal: the rule, after the field and the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RULES = {
    "missing": "must be given",
    "int_type": "must be a number",
    "int_parsing": "must be a number",
    "int_from_float": "must be a whole number",
    "string_type": "must be text (a number or a word like true is text in quotes)",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "must match {pattern}",
    "literal_error": "must be one of {expected}",
    "extra_forbidden": "is none of the known fields",
    "value_error": "{error}",
}
_SHOWN = 60


def sentence(mistake: Mapping[str, Any]) -> str:
    """`field: value rule`, as names.check_* say it; without the value where there is none."""
    field = ".".join(map(str, mistake["loc"]))
    if len(field) > _SHOWN or not field.isprintable():  # a file may name a field anything
        field = repr(field[:_SHOWN])
    rule = _RULES.get(str(mistake["type"]), str(mistake["msg"])).format(**mistake.get("ctx", {}))
    if not field:
        return rule
    value = repr(mistake["input"])
    if mistake["type"] == "missing" or value in rule:
        return f"{field}: {rule}"
    return f"{field}: {value[:_SHOWN]} {rule}"

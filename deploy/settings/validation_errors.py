"""Validation errors of pydantic as sentences in the form of every other refusal: field, value and rule.

The value of a known field is quoted, truncated if it is long. The value of an unknown field, or of a field whose
name suggests a secret, is not quoted (it may be a password in a file of settings). A list or mapping is named by its
kind only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from projections.field_checks import quoted

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
    "extra_forbidden": "is not a known field",
    "value_error": "{error}",
}
_FIELD_SHOWN = 60
_SECRET = re.compile(r"pass|pwd|secret|token|credential|private|auth", re.IGNORECASE)
_LOGIN = re.compile(r"//[^/@\s]*@")
"""The user and password of a URL."""


def error_sentence(error: Mapping[str, Any]) -> str:
    """`field: value rule`, in the form of `field_checks.check_*`; without the value if it may be a secret."""
    field = ".".join(map(str, error["loc"]))
    if len(field) > _FIELD_SHOWN or not field.isprintable():  # a file may contain any field name
        field = quoted(field)
    rule = _RULES.get(str(error["type"]), str(error["msg"])).format(**error.get("ctx", {}))
    if not field:
        return rule
    if error["type"] == "extra_forbidden":
        return f"{field} {rule}"
    value = value_text(error["input"])
    if error["type"] == "missing" or value in rule or _SECRET.search(field):
        return f"{field}: {rule}"
    return f"{field}: {value} {rule}"


def value_text(value: object) -> str:
    """A value for an error message: one line of text or a number is quoted, any other value is named by its kind."""
    match value:
        case str() if "\n" in value:  # a key or a whole file instead of a path or a name
            return kind_of(value)
        case str() | Path():
            return quoted(_LOGIN.sub("//...@", str(value)))
        case bool():
            return str(value).lower()
        case int() | float():
            return quoted(str(value)).strip("'")
    return kind_of(value)


def kind_of(value: object) -> str:
    """The kind of a value of a file, for an error message that must not quote the value."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case str():
            return "text of several lines" if "\n" in value else "text"
        case int() | float():
            return "a number"
        case Mapping():
            return "a mapping"
        case Sequence() if not isinstance(value, bytes):
            return "a list"
    return "another kind of value"

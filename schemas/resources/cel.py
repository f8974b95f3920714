"""Rules of definitions in the Common Expression Language (CEL), evaluated as the API server does.

Values are untyped here, so a rule that names a field outside the schema fails when it is evaluated; the API server
refuses such a definition. A rule that cannot be evaluated refuses the object in both places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

_EXTENSIONS = "extensions:\n- name: strings\n- name: optional\n"
_OLD = re.compile(r"\boldSelf\b")
# A variable cannot have an optional value from Python, but the variable of a macro can have one.
_WITH_OPTIONAL = "[size(before) == 0 ? optional.none() : optional.of(before[0])].exists(oldSelf, {})"


_SHORT = 512
"""Characters of a text whose result is kept."""


class _Absent:
    """The type of ABSENT."""


ABSENT: Final = _Absent()
"""Stands for an older value that does not exist."""


def is_transition(rule: Mapping[str, Any]) -> bool:
    """Whether a rule compares a value with its older one."""
    return _OLD.search(rule["rule"]) is not None


def holds(rule: Mapping[str, Any], value: Any, older: Any) -> bool:
    """Whether a rule holds for a value. A transition rule holds where the older value is absent, unless it takes an
    optional one."""
    is_optional = bool(rule.get("optionalOldSelf"))
    if older is ABSENT and is_transition(rule) and not is_optional:
        return True
    text = _WITH_OPTIONAL.format(rule["rule"]) if is_optional else rule["rule"]
    return _evaluated(text, value, older) is True


def message(rule: Mapping[str, Any], value: Any, older: Any) -> str:
    """The message of a rule that does not hold."""
    if "messageExpression" in rule:
        found = _evaluated(rule["messageExpression"], value, older)
        if isinstance(found, str) and found:
            return found
    return str(rule.get("message", f"must satisfy: {rule['rule']}"))


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern of a schema matches in a text, by the syntax of RE2, which the API server uses."""
    return _matches_short(pattern, text) if len(text) <= _SHORT else _matches(pattern, text)


def _matches(pattern: str, text: str) -> bool:
    data = {"self": text, "pattern": pattern}
    return _program("self.matches(pattern)").eval(data=data).plain_value() is True


_matches_short = lru_cache(maxsize=4096)(_matches)
"""The library compiles a pattern at each use, for 1.3 ms if it is that of images; objects share most of their texts."""


def _evaluated(expression: str, value: Any, older: Any) -> Any:
    before = [] if older is ABSENT else [older]
    data = {"self": value, "before": before} | ({} if older is ABSENT else {"oldSelf": older})
    result = _program(expression).eval(data=data)
    return None if result.type() == cel.Type.ERROR else result.plain_value()


@lru_cache(maxsize=1024)
def _program(expression: str) -> cel.Expression:
    names = ("self", "oldSelf", "before", "pattern")
    environment = cel.NewEnv(config=cel.NewEnvConfigFromYaml(_EXTENSIONS), variables=dict.fromkeys(names, cel.Type.DYN))
    return environment.compile(expression)

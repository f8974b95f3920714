"""The functions of templates: those of Go, and those of the sprig library that configuration needs.

None has a side effect, reads a clock or draws a random number. Results are limited in size.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from projections.resources.go_templates.syntax import TemplateFault
from projections.resources.go_templates.values import INTEGER_BITS_MAX, is_true, text_of

TEXT_MAX = 512 * 1024
ITEMS_MAX = 8_000
COST_MAX = TEXT_MAX // 64
"""Maximum cost of a result: the number of its values, and one for each 64 characters of text."""

_FORMAT = re.compile(r"%(?:%|([-+# 0]*)(\d{1,4})?(?:\.(\d{1,3}))?([vsdqxXftT]))")


def checked(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a function. Raises TemplateFault for arguments that it does not take, and for a result that is too large."""
    try:
        found = function(*arguments)
    except TemplateFault as fault:
        raise TemplateFault(f"{name}: {fault}") from None
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise TemplateFault(f"{name}: does not take these arguments") from None
    if cost(found) > COST_MAX:
        raise TemplateFault(f"{name}: the result is too large")
    if isinstance(found, int) and found.bit_length() > INTEGER_BITS_MAX:
        raise TemplateFault(f"{name}: the result has more than {INTEGER_BITS_MAX} bits")
    return found


def cost(value: Any) -> int:
    """The cost of a value, counted no further than just above the maximum. Values may share parts, so that the number
    of all parts can grow exponentially with the number of steps."""
    found, rest = 0, [value]
    while rest and found <= COST_MAX:
        each = rest.pop()
        found += 1
        if isinstance(each, str):
            found += len(each) // 64
        elif isinstance(each, Mapping):
            rest.extend(each.values())
        elif isinstance(each, list | tuple):
            rest.extend(each)
    return found


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list | tuple | str) and isinstance(key, int) and 0 <= key < len(value):
            value = value[key]
        else:
            raise TemplateFault(f"{text_of(key)} is not in the list")
    return value


def _slice(value: Any, begin: int = 0, end: int | None = None) -> Any:
    return value[begin:end]


def _equal(value: Any, *others: Any) -> bool:
    if not others:
        raise TemplateFault("needs two arguments")
    return any(value == other and (type(value) is type(other) or _are_numbers(value, other)) for other in others)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _compare(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(value: Any, other: Any) -> bool:
        if not (_are_numbers(value, other) or (isinstance(value, str) and isinstance(other, str))):
            raise TemplateFault("compares two numbers or two texts")
        return test(value, other)

    return compare


def _printf(form: str, *values: Any) -> str:
    rest = list(values)

    def one(found: re.Match[str]) -> str:
        flags, width, places, verb = found[1], found[2], found[3], found[4]
        if verb is None:
            return "%"
        if not rest:
            raise TemplateFault(f"{form!r} needs more values")
        value = rest.pop(0)
        match verb:
            case "d":
                return f"%{flags}{width or ''}d" % int(value)
            case "x" | "X":
                return value.encode().hex() if isinstance(value, str) else f"%{flags}{width or ''}{verb}" % int(value)
            case "f":
                return f"%{flags}{width or ''}.{places or 6}f" % float(value)
            case "q":
                return _quote(value)
            case _:
                return f"%{'-' if '-' in flags else ''}{width or ''}s" % text_of(value)

    found = _FORMAT.sub(one, form)
    if rest:
        raise TemplateFault(f"{form!r} needs fewer values")
    return found


def _print(*values: Any) -> str:
    return "".join(map(text_of, values))


def _quote(*values: Any) -> str:
    return " ".join(msgspec.json.encode(text_of(value)).decode() for value in values if value is not None)


def _repeat(count: int, text: str) -> str:
    if count * len(text) > TEXT_MAX:
        raise TemplateFault("the result is too large")
    return text * max(0, count)


def _indent(spaces: int, text: str) -> str:
    if spaces * (text.count("\n") + 1) > TEXT_MAX:
        raise TemplateFault("the result is too large")
    pad = " " * max(0, spaces)
    return pad + text.replace("\n", f"\n{pad}")


def _until(count: int) -> list[int]:
    if count > ITEMS_MAX:
        raise TemplateFault("the result is too large")
    return [*range(count)]


def _replace(old: str, new: str, text: str) -> str:
    if old == "" or (len(text) // max(1, len(old)) + 1) * len(new) > TEXT_MAX:
        raise TemplateFault("the result is too large")
    return text.replace(old, new)


def _whole(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:64]) if re.fullmatch(r"[-+]?[0-9]{1,19}", value.strip()) else 0
    return int(value)


def _fold(step: Callable[[int, int], int]) -> Callable[..., int]:
    def fold(first: Any, *rest: Any) -> int:
        found = _whole(first)
        for each in rest:
            found = step(found, _whole(each))
        return found

    return fold


def _quotient(value: int, other: int) -> int:
    """The quotient rounded to zero, as in Go."""
    found = abs(value) // abs(other)
    return found if (value < 0) == (other < 0) else -found


def _fail(message: Any) -> Any:
    raise TemplateFault(text_of(message))


def _required(message: str, value: Any) -> Any:
    return _fail(message) if value in (None, "") else value


def _dict(*pairs: Any) -> dict[str, Any]:
    return {text_of(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


def _join(between: str, values: Sequence[Any]) -> str:
    return between.join(map(text_of, values))


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=False).removesuffix("\n")


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": lambda value: not is_true(value),
    "eq": _equal,
    "ne": lambda value, other: not _equal(value, other),
    "lt": _compare(lambda value, other: value < other),
    "le": _compare(lambda value, other: value <= other),
    "gt": _compare(lambda value, other: value > other),
    "ge": _compare(lambda value, other: value >= other),
    "len": len,
    "index": _index,
    "slice": _slice,
    "print": _print,
    "println": lambda *values: " ".join(map(text_of, values)) + "\n",
    "printf": _printf,
    "default": lambda value, given=None: given if is_true(given) else value,
    "empty": lambda value: not is_true(value),
    "coalesce": lambda *values: next((each for each in values if is_true(each)), None),
    "ternary": lambda yes, no, test: yes if test else no,
    "quote": _quote,
    "squote": lambda *values: " ".join(f"'{text_of(value)}'" for value in values if value is not None),
    "upper": lambda text: text.upper(),
    "lower": lambda text: text.lower(),
    "title": lambda text: text.title(),
    "trim": lambda text: text.strip(),
    "trimAll": lambda cut, text: text.strip(cut),
    "trimPrefix": lambda cut, text: text.removeprefix(cut),
    "trimSuffix": lambda cut, text: text.removesuffix(cut),
    "replace": _replace,
    "contains": lambda part, text: part in text,
    "hasPrefix": lambda part, text: text.startswith(part),
    "hasSuffix": lambda part, text: text.endswith(part),
    "repeat": _repeat,
    "indent": _indent,
    "nindent": lambda spaces, text: "\n" + _indent(spaces, text),
    "join": _join,
    "splitList": lambda between, text: text.split(between),
    "toString": text_of,
    "int": _whole,
    "int64": _whole,
    "atoi": _whole,
    "add": _fold(lambda value, other: value + other),
    "add1": lambda value: _whole(value) + 1,
    "sub": _fold(lambda value, other: value - other),
    "mul": _fold(lambda value, other: value * other),
    "div": _fold(_quotient),
    "mod": _fold(lambda value, other: value - other * _quotient(value, other)),
    "max": _fold(max),
    "min": _fold(min),
    "list": lambda *values: [*values],
    "dict": _dict,
    "get": lambda values, key: values.get(key, ""),
    "hasKey": lambda values, key: key in values,
    "keys": sorted,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "rest": lambda values: [*values[1:]],
    "has": lambda value, values: value in values,
    "until": _until,
    "toJson": _to_json,
    "toYaml": _to_yaml,
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "b64dec": lambda text: base64.b64decode(text, validate=True).decode(),
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "required": _required,
    "fail": _fail,
}
"""The functions by name. `and` and `or` are not among them: they need not evaluate all of their arguments."""

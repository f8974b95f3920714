"""Quantities of Kubernetes resources, such as `500m` or `2Gi`, and whether requirements fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))(?:[eE]([+-]?[0-9]{1,2})|([A-Za-z]{0,2}))"
)


def quantity(value: Any) -> Fraction | None:
    """The value of a quantity; None if it is not one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    number, exponent, unit = Fraction(found[1]), found[2], found[3] or ""
    if exponent is not None:
        return number * Fraction(10) ** int(exponent)
    if unit in _BINARY:
        return number * (1 << _BINARY[unit])
    return number * Fraction(10) ** _DECIMAL[unit] if unit in _DECIMAL else None


def misfits(
    requirements: Iterable[Mapping[str, Any] | None],
    total: Mapping[str, Any] | None,
    reserved: Mapping[str, Any] | None,
) -> list[str]:
    """What does not fit, a sentence for each resource. Without a total nothing is known, and everything fits."""
    if total is None:
        return []
    needed: dict[str, Fraction] = {}
    for requirement in requirements:
        for name, value in (requirement or {}).items():
            amount = quantity(value)
            if amount is None:
                return [f"{name}: {value!r} is not a quantity"]
            needed[name] = needed.get(name, Fraction(0)) + amount
    faults = []
    for name in sorted(needed):
        available = (quantity(total.get(name, 0)) or Fraction(0)) - (quantity((reserved or {}).get(name, 0)) or 0)
        if needed[name] > available:
            faults.append(f"{name}: the services need {_text(needed[name])} and the flavor leaves {_text(available)}")
    return faults


def _text(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):g}"

"""The deep contents of a fold's state, tables and derived indexes alike, as lines that can be compared."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pyroaring import BitMap

from projections.memo import Memo


def contents_of(state: object) -> list[str]:
    """All values that are reachable from a state, except for the remembered results of pure functions."""
    return list(_walk("", state, ()))


def _walk(path: str, value: Any, above: tuple[int, ...]) -> Iterator[str]:
    match value:
        case Memo() | Callable() | type() | memoryview():
            return
        case None | bool() | int() | float() | str() | bytes():
            yield f"{path} = {value!r}"
        case np.ndarray() | array():
            yield f"{path} = {value.tobytes().hex()}"
        case BitMap():
            yield f"{path} = {list(value)}"
        case dict():
            yield f"{path}: {len(value)} keys"
            for key, item in value.items():
                yield from _walk(f"{path}[{_named(key)}]", item, above)
        case set() | frozenset():
            yield f"{path} = {sorted(map(_named, value))}"
        case _ if hasattr(value, "__iter__") and hasattr(value, "__len__") and not hasattr(value, "__dict__"):
            yield f"{path}: {len(value)} items"
            for number, item in enumerate(value):
                yield from _walk(f"{path}[{number}]", item, above)
        case _:
            assert id(value) not in above, f"{path} leads back to itself"
            for name in _attributes(value):
                yield from _walk(f"{path}.{name}", getattr(value, name), (*above, id(value)))


def _attributes(value: object) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}), *dict.fromkeys(slots)]


def _named(key: object) -> str:
    return repr(key) if type(key).__repr__ is not object.__repr__ else f"#{id(key)}"

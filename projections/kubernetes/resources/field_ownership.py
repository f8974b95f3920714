"""Whether an object has its wanted fields and no former ones, and which managers changed a field of the plane.

An object has more fields than its manifest: defaults of the server, and fields of other managers. So the manifest must
be a part of the object. A field that is wanted no more stays in the object until the plane removes it: the server
remembers the fields that each manager applied (`managedFields`), and every field that the plane owns there must still
be wanted. Both checks need no memory of earlier writes, so a restart repeats no write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = tuple[str, ...]

_SETS = frozenset(("finalizers", "ownerReferences"))
"""Lists of metadata in which every manager has entries of its own."""


def lacking(wanted: Any, live: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of wanted values that an object lacks or has otherwise."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for name, value in wanted.items():
            if name in live:
                yield from lacking(value, live[name], (*path, name))
            elif value not in ({}, []):  # the server drops empty maps and lists of metadata
                yield (*path, name)
    elif _is_list(wanted) and _is_list(live):
        yield from _lacking_in_list(wanted, live, path)
    elif wanted != live or isinstance(wanted, bool) != isinstance(live, bool):
        yield path


def has_surplus(owned: Mapping[str, Any], wanted: Any) -> bool:
    """Whether a manager owns a field (in the form FieldsV1) that its manifest does not have."""
    return any(_is_surplus(step, inner, wanted) for step, inner in owned.items() if step != ".")


def changed_by(path: Path, others: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The managers that own the field at a path, sorted."""
    return sorted(manager for manager, fields in others.items() if _owns(fields, path))


def _lacking_in_list(wanted: Sequence[Any], live: Sequence[Any], path: Path) -> Iterator[Path]:
    if path and path[-1] in _SETS and path[0] == "metadata":
        if any(not any(not [*lacking(each, other)] for other in live) for each in wanted):
            yield path
    elif len(wanted) != len(live):
        yield path
    else:
        for place, (each, other) in enumerate(zip(wanted, live, strict=True)):
            yield from lacking(each, other, (*path, str(place)))


def _is_surplus(step: str, inner: Mapping[str, Any], wanted: Any) -> bool:
    sort, _, name = step.partition(":")
    if sort == "f":
        if not isinstance(wanted, Mapping) or name not in wanted:
            return True
        return has_surplus(inner, wanted[name])
    if not _is_list(wanted):
        return True
    if sort == "v":
        return json.loads(name) not in wanted
    if sort == "k":
        keys = json.loads(name)
        found = next((each for each in wanted if _has_keys(each, keys)), None)
        return found is None or has_surplus(inner, {**keys, **found})
    return False


def _has_keys(element: Any, keys: Mapping[str, Any]) -> bool:
    """Whether an element of a list has these values, of which the server may have added defaults."""
    return isinstance(element, Mapping) and all(element.get(key, value) == value for key, value in keys.items())


def _owns(fields: Mapping[str, Any], path: Path) -> bool:
    for name in path:
        inner = fields.get(f"f:{name}")
        if inner is None:
            return False
        if not inner:
            return True
        fields = inner
    return True


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)

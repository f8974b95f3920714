"""The three forms of patches: RFC 7386, RFC 6902, and server-side apply with its owners of fields."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from schemas.kubernetes.api import CONFLICT, ApiError

FieldPath: TypeAlias = tuple[str, ...]
Owners: TypeAlias = dict[str, set[FieldPath]]
"""The fields that each manager owns."""


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, part in patch.items():
        if part is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), part)
    return found


def json_patched(target: Any, operations: list[Mapping[str, Any]]) -> Any:
    """RFC 6902, without move and copy. Raises ApiError 422."""
    found = copy.deepcopy(target)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        try:
            holder = found
            for part in parents:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            _operate(holder, last, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ApiError(422, "Invalid", f"the server rejected our request: {operation['path']}") from error
    return found


def _operate(holder: Any, last: str, operation: Mapping[str, Any]) -> None:
    place: Any = last
    if isinstance(holder, list):
        place = len(holder) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(holder, list):
            holder.insert(place, operation["value"])
        case "add":
            holder[place] = operation["value"]
        case "replace":
            holder[place]
            holder[place] = operation["value"]
        case "remove":
            del holder[place]
        case "test" if holder[place] != operation["value"]:
            raise ValueError(operation["path"])


def applied(
    live: dict[str, Any],
    intent: dict[str, Any],
    schema: Mapping[str, Any],
    owners: Owners,
    *,
    manager: str,
    is_forced: bool,
) -> dict[str, Any]:
    """Server-side apply of a manager's intent; updates the owners. Raises ApiError 409 on fields of others."""
    now, wanted = dict(_leaves(live, schema, ())), dict(_leaves(intent, schema, ()))
    others = {name: paths for name, paths in owners.items() if name != manager}
    for path, value in wanted.items():
        holders = [name for name, paths in others.items() if path in paths and now.get(path) != value]
        if holders and not is_forced:
            text = f'conflict with "{holders[0]}": .{".".join(path)}'
            raise ApiError(CONFLICT, "Conflict", f"Apply failed with 1 conflict: {text}")
        for name in holders:
            others[name].discard(path)
    found: dict[str, Any] = _overlaid(copy.deepcopy(live), intent, schema)
    dropped = owners.get(manager, set()) - wanted.keys() - set().union(*others.values())
    for path in sorted(dropped, key=len):  # an item of a list before its fields, which name it
        _remove(found, path, schema)
    owners[manager] = set(wanted)
    return found


def updated_owners(
    before: dict[str, Any], after: dict[str, Any], schema: Mapping[str, Any], owners: Owners, manager: str
) -> None:
    """Give the fields that a manager changed to it, and take those that are gone from everyone."""
    old, new = dict(_leaves(before, schema, ())), dict(_leaves(after, schema, ()))
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    for name, paths in owners.items():
        owners[name] = (paths - changed) & new.keys()
    owners.setdefault(manager, set()).update(changed)


def _leaves(value: Any, schema: Mapping[str, Any], path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(part, _inner(schema, name), (*path, name))
    elif isinstance(value, list) and schema.get("x-kubernetes-list-type") == "map":
        for item in value:
            place = (*path, _item_name(item, schema))
            yield place, None
            yield from _leaves(item, schema.get("items", {}), place)
    else:
        yield path, value


def _overlaid(live: Any, intent: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(live, dict) and isinstance(intent, dict):
        found = dict(live)
        for name, part in intent.items():
            found[name] = _overlaid(live.get(name), part, _inner(schema, name))
        return found
    if isinstance(live, list) and isinstance(intent, list) and schema.get("x-kubernetes-list-type") == "map":
        items = {_item_name(item, schema): item for item in live}
        for item in intent:
            name = _item_name(item, schema)
            items[name] = _overlaid(items.get(name), item, schema.get("items", {}))
        return list(items.values())
    return intent


def _remove(target: Any, path: FieldPath, schema: Mapping[str, Any]) -> None:
    *parents, last = path
    for part in parents:
        if isinstance(target, list):
            (target,) = [item for item in target if _item_name(item, schema) == part] or [None]
            schema = schema.get("items", {})
        else:
            target, schema = (target or {}).get(part), _inner(schema, part)
        if target is None:
            return
    if isinstance(target, list):
        target[:] = [item for item in target if _item_name(item, schema) != last]
    else:
        target.pop(last, None)


def _inner(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    rest = schema.get("additionalProperties")
    found: Mapping[str, Any] = schema.get("properties", {}).get(name) or (rest if isinstance(rest, Mapping) else {})
    return found


def _item_name(item: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={item.get(key)}" for key in schema.get("x-kubernetes-list-map-keys", ()))

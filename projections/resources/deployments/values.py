"""The Helm values of a service: those of its configuration over those of its template.

Values of a configuration may name other services as `{{ .Services.<service>.Name }}`: the name of the DPUService that
the deployment wants for a service in `dependsOn`. An annotation can choose other delimiters than `{{ }}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from projections.resources.specs import JSON


def merged(over: Mapping[str, Any], under: Mapping[str, Any]) -> JSON:
    """Values of both; objects are merged, and of other values those of `over` win."""
    found = dict(under)
    for key, value in over.items():
        earlier = found.get(key)
        if isinstance(value, Mapping) and isinstance(earlier, Mapping):
            found[key] = merged(value, earlier)
        else:
            found[key] = value
    return found


def referenced_services(values: Any, delimiters: str | None) -> list[str]:
    """The services that values name, sorted."""
    reference = _reference(delimiters)
    return sorted({found[1] or found[2] for text in _texts(values) for found in reference.finditer(text)})


def with_service_names(values: Any, names: Mapping[str, str], delimiters: str | None) -> Any:
    """These values with the names of services filled in. Every referenced service is in `names`."""
    return _filled(values, _reference(delimiters), names)


def _reference(delimiters: str | None) -> re.Pattern[str]:
    left, _, right = (delimiters or "{{ }}").partition(" ")
    if not left or not right:
        left, right = "{{", "}}"
    name = r"(?:\.Services\.([A-Za-z0-9_]+)\.Name|\(index\s+\.Services\s+\"([^\"]+)\"\)\.Name)"
    return re.compile(rf"{re.escape(left)}-?\s*{name}\s*-?{re.escape(right)}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _filled(value: Any, reference: re.Pattern[str], names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return reference.sub(lambda found: names[found[1] or found[2]], value)
    if isinstance(value, Mapping):
        return {key: _filled(each, reference, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, reference, names) for each in value]
    return value

"""Manifests checked without Kubernetes, as the API server checks them.

A plane without Kubernetes takes the same manifests, so the same ones must be accepted and refused, with the same
defaults. Everything comes from the schema that the definition of the kind has: types, limits, unknown fields, rules,
and the rules that compare an object with its older version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from schemas.resources.cel import ABSENT
from schemas.resources.crds import structural_schema
from schemas.resources.faults import Fault
from schemas.resources.kinds import Kind
from schemas.resources.metadata import metadata_faults
from schemas.resources.plain import unplain_faults
from schemas.resources.structure import Schema, checked, completed, joined

_VARIABLE = re.compile(r"\$(?:\{[A-Z][A-Z0-9_]*\}|[A-Z][A-Z0-9_]*\b)")
_GENERATED = "xxxxx"
_GENERATED_FROM_MAX = 58
"""Characters of generateName that the API server uses before the five that it adds."""


class Validated(NamedTuple):
    """A manifest with its defaults, without unknown fields, and all its faults."""

    manifest: dict[str, Any]
    faults: tuple[Fault, ...]


def validate(
    kind: Kind,
    manifest: Mapping[str, Any],
    older: Mapping[str, Any] | None = None,
    *,
    with_status: bool = False,
    with_admission: bool = True,
) -> Validated:
    """Check a manifest of a kind. `older` is the object that it replaces. Users state no status: it is ignored unless
    `with_status`. The checks that no schema can state follow only for a spec that has passed all others; without
    `with_admission` they are left out, as an API server has none of them."""
    if unplain := tuple(unplain_faults(dict(manifest))):
        return Validated(dict(manifest), unplain)
    schema = schema_of(kind)
    metadata = manifest.get("metadata")
    misnamed = list(metadata_faults(metadata))
    faults = list(misnamed)
    found = completed(schema, _without_metadata(manifest), "", faults)
    before: Any = ABSENT if older is None else completed(schema, _without_metadata(older), "", [])
    if kind.has_status and not with_status:
        found.pop("status", None)
        if older is not None:
            before.pop("status", None)
    if misnamed:  # the rules of the whole object are about its name
        faults += checked({**schema, "x-kubernetes-validations": ()}, found, before, "")
        return Validated(found, tuple(faults))
    assert isinstance(metadata, Mapping)
    if older is not None:
        before["metadata"] = _identity(older["metadata"])
    faults += checked(schema, found | {"metadata": _identity(metadata)}, before, "")
    spec, earlier = found.get("spec"), None if older is None else before.get("spec")
    if with_admission and kind.admission and spec is not None and spec != earlier and not faults:
        faults += kind.admission(spec, earlier)
    return Validated(found | {"metadata": dict(metadata)}, tuple(faults))


def unreplaced_variables(kind: Kind, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Values with a $VARIABLE that should have been replaced before the manifest is applied. Texts of several lines and
    objects of any fields are passed over, as scripts and charts may have such words of their own."""
    yield from _variables(schema_of(kind), {key: manifest[key] for key in manifest if key != "status"}, "")


@lru_cache(maxsize=64)
def schema_of(kind: Kind) -> Schema:
    """The structural schema of a kind. Computing it takes milliseconds, so it is kept."""
    return structural_schema(kind)


def _without_metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "metadata"}


def _identity(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the metadata that rules can read. The API server generates a name before it evaluates them."""
    found = {key: metadata[key] for key in ("name", "generateName") if metadata.get(key)}
    return (
        {"name": f"{metadata['generateName'][:_GENERATED_FROM_MAX]}{_GENERATED}", **found}
        if "name" not in found
        else found
    )


def _variables(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    match value:
        case str() if "\n" not in value and (found := _VARIABLE.search(value)):
            yield Fault(path, f"has {found[0]}, a variable that nobody replaced")
        case dict() if path == "metadata" or not schema.get("x-kubernetes-preserve-unknown-fields"):
            properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
            for key, item in value.items():
                yield from _variables(properties.get(key, others), item, joined(path, key))
        case list():
            for at, item in enumerate(value):
                yield from _variables(schema.get("items", {}), item, f"{path}[{at}]")

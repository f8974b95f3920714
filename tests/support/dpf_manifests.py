"""Manifests of DPF's kinds as its users write them, in both generations, and the fields that they use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

from deploy.settings.yaml_text import documents_of
from schemas.resources.dpf import DPF_KINDS
from schemas.resources.kinds import Kind
from schemas.resources.model import Model

FOLDER = Path(__file__).parent / "manifests" / "dpf"
OLD = "24.10"
CURRENT = "current"


class Given(NamedTuple):
    """A manifest and its kind."""

    generation: str
    kind: Kind
    manifest: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"{self.generation}-{self.kind.name}-{self.manifest['metadata']['name']}"


@lru_cache
def manifests(generation: str = "*") -> list[Given]:
    """Every manifest of a generation, or of both."""
    return [
        Given(path.parent.name, DPF_KINDS[document["apiVersion"].partition("/")[0], document["kind"]], document)
        for path in sorted(FOLDER.glob(f"{generation}/*.yaml"))
        for document in documents_of(path.read_text(encoding="utf-8"))
    ]


def fields_of(annotation: Any) -> set[tuple[str, str]]:
    """Every field of the models in a type: the model that declares it and its name."""
    found: set[tuple[str, str]] = set()
    if isinstance(annotation, type) and issubclass(annotation, Model):
        for name, field in annotation.model_fields.items():
            found |= {_declared(annotation, name)} | fields_of(field.annotation)
    for part in get_args(annotation):
        found |= fields_of(part)
    return found


def used_fields(value: Any) -> set[tuple[str, str]]:
    """Every field that an object has, in the same form."""
    match value:
        case Model():
            found = {_declared(type(value), name) for name in value.model_fields_set}
            return found.union(*(used_fields(getattr(value, name)) for name in value.model_fields_set))
        case dict():
            return set[tuple[str, str]]().union(*map(used_fields, value.values()))
        case list():
            return set[tuple[str, str]]().union(*map(used_fields, value))
        case _:
            return set()


def _declared(model: type[Model], name: str) -> tuple[str, str]:
    """A field by the model that declares it, which may be a base of the given one."""
    (owner,) = [base for base in model.__mro__ if name in vars(base).get("__annotations__", {})][:1]
    return owner.__name__, name

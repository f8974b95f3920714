"""Secrets in manifests. No value of one is printed or quoted."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb

_TYPE = "Opaque"


class SecretManifest(NamedTuple):
    """A Secret of a text. `note` is the line that says that it was passed over."""

    namespace: str
    name: str
    document: Mapping[str, Any]
    place: str
    note: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def __repr__(self) -> str:
        return f"SecretManifest({quoted(self.namespace)}, {quoted(self.name)})"


def secrets_of(document: Mapping[str, Any], place: str, namespace: str, title: str) -> Iterator[SecretManifest]:
    """The Secret that a document is, if it is one with a name."""
    if (document.get("apiVersion"), document.get("kind")) != ("v1", "Secret"):
        return
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if isinstance(metadata, Mapping) and isinstance(name, str) and name:
        yield SecretManifest(str(metadata.get("namespace") or namespace), name, document, place, f"{place}: {title}")


def secret_value(secret: SecretManifest) -> pb.SecretValue | str:
    """The Secret as the server takes it, or its fault, which quotes no value."""
    data: dict[str, bytes] = {}
    for field in ("data", "stringData"):
        given = secret.document.get(field) or {}
        if not isinstance(given, Mapping):
            return f"{field}: must be an object"
        for key, value in given.items():
            if not isinstance(value, str):
                return f"{field}.{key}: must be text"
            try:
                data[key] = base64.b64decode(value, validate=True) if field == "data" else value.encode()
            except (binascii.Error, ValueError):
                return f"{field}.{key}: must be base64"
    kind = secret.document.get("type") or _TYPE
    return pb.SecretValue(namespace=secret.namespace, name=secret.name, type=str(kind), data=data)

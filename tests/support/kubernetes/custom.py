"""Objects of custom kinds as list-watches hand them to a handler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from schemas.kubernetes.objects import Custom, Metadata

CREATED_S = 1_600_000_000


def custom(
    name: str,
    spec: Mapping[str, Any] | None = None,
    *,
    namespace: str = "dpf",
    uid: str = "",
    generation: int = 1,
    created_s: int = CREATED_S,
    deleted_s: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    version: int = 1,
) -> Custom:
    """An object. Its uid is its name unless one is given."""
    metadata = Metadata(
        name=name,
        namespace=namespace,
        uid=uid or f"uid-{name}",
        resource_version=str(version),
        generation=generation,
        creation_timestamp=datetime.fromtimestamp(created_s, UTC),
        deletion_timestamp=datetime.fromtimestamp(deleted_s, UTC) if deleted_s else None,
        labels=dict(labels or {}),
        annotations=dict(annotations or {}),
    )
    return Custom(metadata, _raw(spec), _raw(status))


def list_of(handler: Any, *items: Any, went_back: bool = False) -> None:
    """Give a handler a complete list."""
    handler.list_began()
    for each in items:
        handler.present(each)
    handler.list_completed(went_back=went_back)


def _raw(value: Mapping[str, Any] | None) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value or {}).encode())

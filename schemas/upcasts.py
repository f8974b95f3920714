"""Upcasts: pure functions that convert an event of an older schema version to the next version.

A log is never rewritten. When an event type gets a schema `Name.v2`, its Struct follows v2, `Name.v1` stays released
for ever, and one function here turns the fields of v1 into those of v2. A reader chains them, so each is written once
and never changed. A step may use only the fields that it is given, because every replay runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]
"""The fields of an event by name, with its envelope (an Envelope)."""

Upcast: TypeAlias = Callable[[Fields], Fields]

UPCASTS: Mapping[str, Upcast] = {}
"""The upcast of each old schema version, such as `Name.v1`, to the next version."""

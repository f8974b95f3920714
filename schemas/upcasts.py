"""How an event written under an older schema becomes one of the newest: a pure function per version step.

A log is never rewritten. When an event type gets a schema `Name.v2`, its Struct follows v2, `Name.v1` stays released
for ever, and one function here turns the fields of v1 into those of v2. A reader chains them, so each is written once
and never touched again. A step may use nothing but the fields it is given: what it does is part of every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]
"""The fields of an event by name, its envelope (an Envelope) among them."""

Upcast: TypeAlias = Callable[[Fields], Fields]

UPCASTS: Mapping[str, Upcast] = {}
"""From the schema that it reads, as `Name.v1`, to the function that makes fields of the next version of it."""

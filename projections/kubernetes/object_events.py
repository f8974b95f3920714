"""Kubernetes Events: what a person must know about an object, as `kubectl describe` shows it.

The name of an Event is a hash of its object, reason and code. A repetition therefore updates the Event that exists,
with the newest message, and a restarted process finds its earlier Events instead of writing them again. The message is
not part of the name: it may have a count or a time, and each text would be an Event of its own. The kind is core/v1
Event, because its count, times and message are plain fields that one patch replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from projections.kubernetes.status_body import shortened, to_rfc3339

COMPONENT = "dpuplane"
CLUSTER_NAMESPACE = "default"
"""The namespace of the Events of an object without a namespace: the API server accepts no other one."""
MAX_MESSAGE = 1_024
_MAX_NAME = 253
_HASH_BYTES = 8


class Regarding(NamedTuple):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class ObjectEvent(NamedTuple):
    """An Event. Its reason is one word in upper camel case. Events of one object and reason with different codes are
    different Events: two codes, such as the codes of two refusals, are two facts."""

    regarding: Regarding
    reason: str
    message: str
    is_warning: bool = True
    code: str = ""

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or CLUSTER_NAMESPACE

    @property
    def name(self) -> str:
        """The name of the Event: the name of its object, and a hash of the object's uid, the reason and the code."""
        parts = json.dumps([self.regarding.uid, self.reason, self.code])
        digest = blake2b(parts.encode(), digest_size=_HASH_BYTES).hexdigest()
        longest = _MAX_NAME - len(digest) - 1
        return f"{self.regarding.name[:longest].rstrip('-.')}.{digest}"


Report: TypeAlias = Callable[[ObjectEvent], None]
"""Takes an Event that a person must see. It returns immediately."""


def ignore(event: ObjectEvent) -> None:
    """Report an Event nowhere."""


def collection_path(event: ObjectEvent) -> str:
    """The path of the Events in the namespace of an Event."""
    return f"/api/v1/namespaces/{event.namespace}/events"


def document(event: ObjectEvent, *, count: int, first_ms: int, last_ms: int) -> dict[str, Any]:
    """A new Event object."""
    about = event.regarding
    regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        regarding["namespace"] = about.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": event.namespace},
        "involvedObject": regarding,
        "type": "Warning" if event.is_warning else "Normal",
        "reason": event.reason,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": to_rfc3339(first_ms),
        **repetition(event, count, last_ms),
    }


def repetition(event: ObjectEvent, count: int, last_ms: int) -> dict[str, Any]:
    """The fields of an Event that a repetition changes."""
    message = shortened(event.message, MAX_MESSAGE)
    return {"count": count, "lastTimestamp": to_rfc3339(last_ms), "message": message}

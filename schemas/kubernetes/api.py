"""The Kubernetes API as the plane uses it: lists in pages, watches, and writes of single objects.

One implementation speaks to an API server (drivers/kubernetes/client.py), another one is simulated; both pass the same
contract tests. Objects are JSON: a reader decodes only the fields that it uses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

CONFLICT = 409
GONE = 410
NOT_FOUND = 404
TOO_MANY_REQUESTS = 429

PatchType: TypeAlias = Literal["merge", "apply", "json"]
"""Merge patch (RFC 7386), server-side apply, JSON patch (RFC 6902)."""


class ApiError(Exception):
    """The API server refused a request, or no valid answer arrived (status 0). A refusal has the server's message."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """The machine-readable reason of the server's Status, such as AlreadyExists or Expired."""
        self.retry_after_s = retry_after_s
        """The pause that the server asks for (RFC 9110, Retry-After)."""

    @property
    def may_have_taken_effect(self) -> bool:
        """Whether a write may have been committed despite the error: no answer arrived, or the server failed or timed
        out.
        """
        return self.status == 0 or self.status >= 500


class WatchEvent(NamedTuple):
    """One line of a watch. An ERROR is raised as ApiError instead."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: bytes


class KubernetesApi(Protocol):
    """An API server. Every method raises ApiError. Paths begin with /api or /apis. `query` has the parameters of the
    URL, under the API server's names.
    """

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes: ...

    def watch(
        self, path: str, query: Mapping[str, str], *, idle_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """The events of a watch until the server ends it. Raises ApiError with status 0 after `idle_s` without a
        line."""
        ...

    async def create(self, path: str, body: Any) -> bytes: ...

    async def replace(self, path: str, body: Any) -> bytes:
        """Replace an object (PUT). With `metadata.resourceVersion` in the body, only this version is replaced."""
        ...

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes: ...

    async def delete(self, path: str, *, uid: str) -> bytes:
        """Delete the object with this uid, and no later one with its name. Objects that it owns follow it."""
        ...

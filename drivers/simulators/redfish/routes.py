"""The table of resources: which paths exist, and which function answers each method."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from drivers.simulators.redfish.accounts import Caller
from drivers.simulators.redfish.messages import Answer, Json, Refused, Request

if TYPE_CHECKING:
    from drivers.simulators.redfish.bmc import RedfishBmc


class Call(NamedTuple):
    """A request to a resource. `names` are the variable parts of its path."""

    bmc: RedfishBmc
    request: Request
    names: tuple[str, ...]
    caller: Caller | None

    @property
    def path(self) -> str:
        return self.request.path

    @property
    def user(self) -> Caller:
        assert self.caller is not None, "the resource is not public"
        return self.caller


Handler: TypeAlias = Callable[[Call], Answer]
Reader: TypeAlias = Callable[[Call], Json | None]
"""Returns the resource; None if it does not exist."""


@dataclass(frozen=True)
class Route:
    """A path with `{}` for variable parts. `public` methods need no credentials; `unlisted` ones are not advertised."""

    path: str
    read: Reader | None = None
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    public: frozenset[str] = frozenset()
    unlisted: frozenset[str] = frozenset()

    @property
    def methods(self) -> list[str]:
        return sorted((({"GET", "HEAD"} if self.read else set()) | set(self.handlers)) - self.unlisted)


class Routes:
    """Finds the route of a path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(re.compile(re.escape(each.path).replace(r"\{\}", "([^/]+)")), each) for each in routes]

    def find(self, path: str) -> tuple[Route, tuple[str, ...]]:
        """The route of a path and its variable parts. Raises Refused."""
        for pattern, route in self._routes:
            if found := pattern.fullmatch(path):
                return route, found.groups()
        raise missing(path)


def missing(path: str) -> Refused:
    """The refusal of a path without a resource."""
    return Refused(404, "ResourceMissingAtURI", f"The resource at the URI '{path}' was not found.")


def collection(path: str, kind: str, members: list[str]) -> Json:
    """A collection of resources, by the last parts of their paths."""
    return {
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "@odata.id": path,
        "Name": f"{kind} Collection",
        "Members@odata.count": len(members),
        "Members": [{"@odata.id": f"{path}/{name}"} for name in members],
    }


def link(path: str) -> Json:
    """A reference to a resource."""
    return {"@odata.id": path}

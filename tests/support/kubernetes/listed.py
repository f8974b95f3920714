"""A handler of a list-watch of Nodes that keeps what it was told."""

from __future__ import annotations

from schemas.kubernetes.objects import Node


class Seen:
    """A handler that keeps what it was told."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        """The label `a` of each present node."""
        self.lists: list[list[str]] = []
        """The names in each complete list."""
        self.went_back: list[bool] = []
        self.deleted_names: list[str] = []
        self.began = 0
        self._listed: list[str] | None = None

    def list_began(self) -> None:
        self.began += 1
        self._listed = []

    def present(self, item: Node) -> None:
        self.nodes[item.metadata.name] = (item.metadata.labels or {}).get("a", "")
        if self._listed is not None:
            self._listed.append(item.metadata.name)

    def deleted(self, item: Node) -> None:
        self.nodes.pop(item.metadata.name, None)
        self.deleted_names.append(item.metadata.name)

    def list_completed(self, *, went_back: bool) -> None:
        assert self._listed is not None
        self.lists.append(self._listed)
        self.went_back.append(went_back)
        self.nodes = {name: label for name, label in self.nodes.items() if name in self._listed}
        self._listed = None

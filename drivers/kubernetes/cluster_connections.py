"""The open connections to a source cluster and to its DPU clusters, shared by all parts of an edge."""

from __future__ import annotations

from collections.abc import Callable

from schemas.kubernetes.api import KubernetesApi


class ClusterConnections:
    """Clients of API servers, by the source of the objects in their cluster. A client is replaced when its kubeconfig
    names another server, so readers look it up again after an error."""

    def __init__(self) -> None:
        self._clients: dict[str, KubernetesApi] = {}
        self._listeners: dict[object, Callable[[], None]] = {}

    def api(self, source: str) -> KubernetesApi | None:
        """The client of a cluster; None while there is no connection to it."""
        return self._clients.get(source)

    def sources(self) -> tuple[str, ...]:
        """The connected clusters, sorted."""
        return tuple(sorted(self._clients))

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change. Returns a function that ends the subscription."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    def add(self, source: str, api: KubernetesApi) -> None:
        """Record an open connection."""
        self._clients[source] = api
        self._notify()

    def remove(self, source: str, api: KubernetesApi) -> None:
        """Record that this connection is closed. A newer one to the same cluster stays."""
        if self._clients.get(source) is api:
            del self._clients[source]
            self._notify()

    def _notify(self) -> None:
        for listener in (*self._listeners.values(),):
            listener()

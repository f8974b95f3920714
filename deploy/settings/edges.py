"""The settings of Kubernetes edges, from those of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.kubernetes.node_facts import NodeRules
from commands.kubernetes.users import parse_users
from deploy.composition.kubernetes_edge import EdgeSettings

if TYPE_CHECKING:
    from deploy.settings.settings import Settings


def edge_of(settings: Settings, source: str) -> EdgeSettings:
    """The settings of the edge of a source cluster: the objects that it watches and writes."""
    nodes = NodeRules(
        source=source,
        zone_label=settings.zone_label,
        fallback_zone=settings.fallback_zone,
        address_type=settings.node_address_type,
        labels=[pattern.strip() for pattern in settings.node_labels.split(",") if pattern.strip()],
    )
    users = parse_users(source, settings.kubernetes_users)
    assert not isinstance(users, str), "checked with the other settings"
    return EdgeSettings(
        nodes=nodes,
        cliques=None if settings.kubernetes_cliques == "off" else settings.kubernetes_cliques,
        driver_namespace=settings.driver_namespace,
        has_status=settings.kubernetes_status,
        has_events=settings.kubernetes_events,
        has_resources=settings.kubernetes_resources,
        users=users,
        requests_per_second=settings.kubernetes_requests_per_second,
    )

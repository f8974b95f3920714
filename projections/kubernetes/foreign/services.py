"""Services: of a control plane that Kamaji made, of the config ports of a DPUService, and of a chart in a DPU cluster.

The observation of a Service has its ports on the nodes. The first port of the Service of a control plane is that of the
API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from projections.kubernetes.foreign.kind import ForeignKind, decoded
from projections.resources.kinds import SERVICE
from projections.resources.services.config_ports import NAMESPACE_FIELD, NODE_PORT, PORTS, SERVICE_FIELD
from schemas.kubernetes.objects import Custom, Fields
from schemas.resources.dpf.names import CLUSTER_NAME, SERVICE_NAME, SERVICE_NAMESPACE

_API_SERVER = "kube-apiserver"
"""The name of the port of the API server."""


class _Port(Fields, frozen=True, gc=False):
    name: str = ""
    node_port: int = 0


class _Spec(Fields, frozen=True):
    type: str = ""
    ports: list[_Port] | None = None


_spec = msgspec.json.Decoder(_Spec)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a Service."""
    spec = decoded(_spec, item.spec, _Spec())
    ports = spec.ports or []
    named = [port for port in ports if port.name == _API_SERVER]
    number = next((port.node_port for port in (*named, *ports)), 0)
    is_ready = number > 0 or spec.type not in ("", NODE_PORT)
    return {
        "ready": is_ready,
        "message": "" if is_ready else "it has no port of the nodes yet",
        "nodePort": number,
        PORTS: _by_name(ports),
    }


def observe_chart(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a Service that a chart has made in a DPU cluster."""
    labels = item.metadata.labels or {}
    return {
        "ready": True,
        SERVICE_FIELD: labels.get(SERVICE_NAME, ""),
        NAMESPACE_FIELD: labels.get(SERVICE_NAMESPACE, ""),
        PORTS: _by_name(decoded(_spec, item.spec, _Spec()).ports or []),
    }


def _by_name(ports: Sequence[_Port]) -> dict[str, int]:
    return {port.name: port.node_port for port in sorted(ports, key=lambda port: port.name) if port.node_port > 0}


CLUSTER_SERVICE = ForeignKind(SERVICE, "v1", "services", observe, label_selector=CLUSTER_NAME)
CHART_SERVICE = ForeignKind(SERVICE, "v1", "services", observe_chart, label_selector=SERVICE_NAME)

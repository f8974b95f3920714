"""keepalived in front of a DPU cluster's API server: a virtual address that moves among the nodes of the control plane.

The priority of a node is the last octet of its address. A node gives the virtual address up while its own API server
does not answer. The configuration is a template in a ConfigMap, which an init container completes with the node's
address.
"""

from __future__ import annotations

from projections.resources.control_planes.placement import on_control_plane, tolerations
from projections.resources.control_planes.specs import Keepalived
from projections.resources.kinds import CONFIG_MAP, DAEMON_SET, SECRET
from projections.resources.lookup import Lookup
from projections.resources.specs import JSON, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import SecretSource, Wanted

IMAGE = "osixia/keepalived:2.0.20"
INIT_IMAGE = "alpine:3.20.3"
CAPABILITIES = ("NET_ADMIN", "NET_BROADCAST", "NET_RAW")
"""What the image needs to move an address. DPF runs it with all privileges."""
_NAME = "app.kubernetes.io/name"

_TEMPLATE = """\
vrrp_script check_control_plane {
  script "/usr/bin/curl -k https://NODE_IP:NODE_PORT"
  interval 2
  rise 3
  fall 2
  weight 0
}

vrrp_instance dpu_cluster_control_plane {
  state BACKUP
  interface INTERFACE
  virtual_router_id ROUTER_ID
  priority PRIORITY
  virtual_ipaddress {
    VIRTUAL_IP
  }
  track_script {
    check_control_plane
  }
}
"""

_FILL = """\
set -eu
sed "s/INTERFACE/${INTERFACE}/g; s/ROUTER_ID/${ROUTER_ID}/g; s/PRIORITY/${NODE_IP##*.}/g; s/NODE_PORT/${NODE_PORT}/g; \
s/VIRTUAL_IP/${VIRTUAL_IP}/g; s/NODE_IP/${NODE_IP}/g" /template/keepalived.conf > /conf/keepalived.conf
"""


def keepalived(cluster: ObjectId, spec: Keepalived, node_port: int, lookup: Lookup) -> list[Wanted]:
    """The ConfigMap and the DaemonSet, and copies of the pull secrets that are in another namespace."""
    name = f"{cluster.name}-keepalived"
    settings = lookup.settings(cluster.source)
    config = cluster._replace(kind=CONFIG_MAP, name=name)
    daemon = cluster._replace(kind=DAEMON_SET, name=name)
    content = _daemon_set(name, spec, node_port, settings.pull_secrets)
    secrets = [
        Wanted(
            at=ObjectId(cluster.source, SECRET, cluster.namespace, each),
            owner=cluster.key,
            spec={},
            secret=SecretSource(ObjectId(cluster.source, SECRET, settings.namespace, each)),
        )
        for each in settings.pull_secrets
        if settings.namespace != cluster.namespace
    ]
    labels = {_NAME: name}
    return [
        *secrets,
        Wanted(config, cluster.key, {}, labels, fields={"data": {"keepalived.conf": _TEMPLATE}}),
        Wanted(daemon, cluster.key, content, labels),
    ]


def _daemon_set(name: str, spec: Keepalived, node_port: int, pull_secrets: tuple[str, ...]) -> JSON:
    values = {
        "INTERFACE": spec.interface,
        "ROUTER_ID": str(spec.virtual_router_id),
        "NODE_PORT": str(node_port),
        "VIRTUAL_IP": spec.vip,
    }
    environment: list[JSON] = [{"name": key, "value": value} for key, value in values.items()]
    environment.append({"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    pod = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": spec.node_selector,
        "imagePullSecrets": [{"name": each} for each in pull_secrets] or None,
        "affinity": {"nodeAffinity": on_control_plane()},
        "tolerations": tolerations(),
        "initContainers": [
            {
                "name": "create-conf",
                "image": INIT_IMAGE,
                "command": ["/bin/sh", "-c", _FILL],
                "env": environment,
                "volumeMounts": [
                    {"name": "template", "mountPath": "/template", "readOnly": True},
                    {"name": "conf", "mountPath": "/conf"},
                ],
            }
        ],
        "containers": [
            {
                "name": "keepalived",
                "image": IMAGE,
                "securityContext": {"capabilities": {"add": list(CAPABILITIES)}},
                "resources": {"requests": {"cpu": "5m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                "volumeMounts": [{"name": "conf", "mountPath": "/usr/local/etc/keepalived"}],
            }
        ],
        "volumes": [
            {"name": "conf", "emptyDir": {"sizeLimit": "50Mi"}},
            {"name": "template", "configMap": {"name": name}},
        ],
    }
    labels = {_NAME: name}
    return {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": without_absent(pod)},
    }

"""Renders the Helm chart with the real helm, and finds objects in what it renders."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.kubernetes.chart_values import CHART
from tests.support.kubernetes.build import program

RELEASE = "plane"
NAMESPACE = "dpu-system"
HELM_TIMEOUT_S = 120

Values = Mapping[str, Any]
Object = dict[str, Any]

KAFKA: Values = {"log": "kafka", "kafka": {"brokers": "kafka-1:9092,kafka-2:9093"}}
LAB: Values = {"tls": {"source": "none"}}
MANAGED: Values = {"tls": {"issuer": {"name": "plane-ca"}, "trustDomain": "example.org"}}
SECRETS: Values = {"tls": {"source": "secret", "secretPrefix": "plane-", "trustDomain": "example.org"}}
MONITORED: Values = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "runbook": "https://runbooks.example.org/dpuplane"},
}
FOUND: Values = {
    "fullnameOverride": "fleet",
    "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": ["registry"]},
    "kubernetes": {"enabled": False},
    "crds": {"install": False},
    "rbac": {"peopleRoles": False},
    "networkPolicy": {"enabled": False},
    "roles": {"relay": {"replicas": 3, "settings": {"zones": "rack7,rack8"}}, "decisions": {"replicas": 0}},
    "settings": {"calls_per_second": 1_000, "as_of_servers": 1},
    "pods": {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"pool": "infra"},
        "priorityClassName": "system-cluster-critical",
        "labels": {"team": "network"},
        "annotations": {"example.org/owner": "ann"},
    },
    "service": {"agents": {"type": "LoadBalancer", "annotations": {"example.org/pool": "dpu"}}},
}
DRIVER_NAMESPACE = "dra-driver-nvidia-gpu"
CLUSTER_NAMESPACES = ("dpf-operator-system", "others")
"""Namespaces of DPUClusters."""
RESTRICTED: Values = {
    "kubernetes": {"cliques": "beside"},
    "listenHost": "[::]",
    "networkPolicy": {
        "apiFrom": [{"namespaceSelector": {}}],
        "agentsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        "kafkaTo": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
        "apiServerTo": [{"ipBlock": {"cidr": "10.2.0.1/32"}}],
        "extraEgress": [{"ports": [{"port": 4318}]}],
    },
}


def _merged(*sets: Values) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for values in sets:
        for key, value in values.items():
            found[key] = _merged(found.get(key, {}), value) if isinstance(value, Mapping) else value
    return found


VALUE_SETS: Mapping[str, Values] = {
    "embedded, lab, cliques": _merged(
        LAB,
        {
            "kubernetes": {
                "cliques": "assign",
                "nodeLabels": ["tier"],
                "users": ["*@example.org=*", "root=ops"],
                "resources": {"enabled": True, "namespaces": [*CLUSTER_NAMESPACES]},
            }
        },
    ),
    "embedded, cert-manager, monitored": _merged(MANAGED, MONITORED, {"tls": {"revoked": ["ab12"]}}),
    "embedded, existing claim": _merged(SECRETS, {"embedded": {"existingClaim": "log"}}),
    "Kafka, lab": _merged(KAFKA, LAB),
    "Kafka, cert-manager, monitored": _merged(KAFKA, MANAGED, MONITORED, {"tls": {"dnsNames": ["plane.example.org"]}}),
    "Kafka with passwords, secrets": _merged(
        KAFKA,
        SECRETS,
        {"kafka": {"securityProtocol": "SASL_SSL", "passwordSecret": "passwords", "caSecret": "kafka-ca"}},
    ),
    "Kafka with certificates, restricted": _merged(
        KAFKA, MANAGED, RESTRICTED, {"kafka": {"securityProtocol": "SSL", "certificateSecretPrefix": "kafka-"}}
    ),
    "Kafka, other names and sizes": _merged(
        KAFKA, SECRETS, MONITORED, FOUND, {"serviceMonitor": {"tlsSecret": "scrape"}}
    ),
}


def helm(
    *arguments: str, values: Values, folder: Path, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of helm with values, for a cluster if one is given."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    return subprocess.run(
        [str(program("helm")), *arguments, *(["--values", str(path)] if values else []), "--namespace", NAMESPACE],
        capture_output=True,
        text=True,
        timeout=HELM_TIMEOUT_S,
        check=False,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})},
    )


def render(values: Values, folder: Path) -> list[Object]:
    """Every object of the chart."""
    done = helm("template", RELEASE, str(CHART), values=values, folder=folder)
    assert not done.returncode, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """The objects of these kinds."""
    return [each for each in objects if each["kind"] in kinds]


def pods_of(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """The pod template of each workload, by role."""
    for workload in of_kind(objects, "Deployment", "StatefulSet"):
        template = workload["spec"]["template"]
        yield template["metadata"]["labels"]["app.kubernetes.io/component"], template


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector with `matchLabels`, or that of a Service, selects an object with these labels."""
    wanted: Mapping[str, str] = selector.get("matchLabels", selector)
    return wanted.items() <= labels.items()

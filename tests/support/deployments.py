"""A DPUDeployment of two services with a chain, and everything that it needs."""

from __future__ import annotations

from typing import Any

from projections.resources.kinds import (
    BFB,
    DPU_DEPLOYMENT,
    DPU_DEVICE,
    DPU_FLAVOR,
    DPU_NODE,
    DPU_SERVICE_CONFIGURATION,
    DPU_SERVICE_TEMPLATE,
)
from projections.resources.state import Resource
from tests.support.derivations import Derived, device, key, row

CHART = {"source": {"repoURL": "https://charts", "version": "1", "chart": "c"}, "values": {"a": 1, "b": {"c": 1}}}


def deployment(**changes: Any) -> Resource:
    """A deployment of two services, of which `agent` depends on `hbn`, with a chain; `changes` replace fields."""
    spec: dict[str, Any] = {
        "dpus": {"bfb": "image", "flavor": "flavor", "dpuSets": [{"nameSuffix": "all"}]},
        "services": {
            "agent": {"serviceTemplate": "agent", "serviceConfiguration": "agent", "dependsOn": [{"name": "hbn"}]},
            "hbn": {"serviceTemplate": "hbn", "serviceConfiguration": "hbn"},
        },
        "serviceChains": {
            "switches": [
                {
                    "serviceMTU": 9000,
                    "ports": [
                        {"service": {"name": "hbn", "interface": "p0_if", "ipam": {"matchLabels": {"pool": "a"}}}},
                        {"serviceInterface": {"matchLabels": {"uplink": "p0"}}},
                    ],
                }
            ]
        },
    }
    return row(spec | changes, created_ms=5)


def template(service: str, **changes: Any) -> Resource:
    return row({"deploymentServiceName": service, "helmChart": CHART} | changes)


def configuration(service: str, values: dict[str, Any] | None = None, **changes: Any) -> Resource:
    settings = {"helmChart": {"values": values or {}}}
    return row({"deploymentServiceName": service, "serviceConfiguration": settings} | changes)


def parts() -> dict[str, Resource]:
    """Everything that the deployment needs, with one host."""
    interfaces = [{"name": "p0_if", "network": "mybrhbn"}]
    return {
        key(BFB, "image"): row({"url": "https://images/a.bfb"}),
        key(DPU_FLAVOR, "flavor"): row({"dpuResources": {"cpu": 16, "memory": "6Gi"}}),
        key(DPU_SERVICE_TEMPLATE, "hbn"): template("hbn", resourceRequirements={"cpu": "1500m", "memory": "2Gi"}),
        key(DPU_SERVICE_CONFIGURATION, "hbn"): configuration("hbn", {"b": {"d": 2}}, interfaces=interfaces),
        key(DPU_SERVICE_TEMPLATE, "agent"): template("agent"),
        key(DPU_SERVICE_CONFIGURATION, "agent"): configuration("agent", {"peer": "{{ .Services.hbn.Name }}"}),
        key(DPU_NODE, "a"): row(),
        key(DPU_DEVICE, "d0"): device("a"),
    }


def deployed(**changes: Any) -> Derived:
    return Derived(parts() | {key(DPU_DEPLOYMENT, "dep"): deployment(**changes)})

"""The rights of upstream's daemons in a cluster where the plane alone writes cliques."""

from __future__ import annotations

from schemas.kubernetes.api import KubernetesApi
from schemas.resources.compute_domain import COMPUTE_DOMAIN_CLIQUE, GROUP
from tests.support.kubernetes.requests import until_allowed


async def let_read(api: KubernetesApi, user: str) -> None:
    """Give a user the rights of upstream's role, without those to write cliques. Returns when the API server knows
    it."""
    group = "/apis/rbac.authorization.k8s.io/v1"
    reads = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [GROUP], "resources": [COMPUTE_DOMAIN_CLIQUE.plural], "verbs": reads},
        {"apiGroups": [""], "resources": ["pods"], "verbs": [*reads, "patch"]},
    ]
    await api.create(f"{group}/clusterroles", {"metadata": {"name": user}, "rules": rules})
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": user}, "subjects": [subject], "roleRef": role}
    await api.create(f"{group}/clusterrolebindings", body)
    await until_allowed(api, rules, user)

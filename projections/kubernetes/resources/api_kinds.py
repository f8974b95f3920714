"""The kinds of objects that the plane writes into clusters, with the paths that an API server serves them under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from projections.resources import kinds
from schemas.resources.dpf import KINDS

_CORE = "core"
"""The plane's name for the group of Kubernetes that has no name."""


class ApiKind(NamedTuple):
    """A kind on an API server. `key` is its name in the keys of objects, `Kind.group`."""

    key: str
    version: str
    plural: str
    is_namespaced: bool = True

    @property
    def name(self) -> str:
        return self.key.partition(".")[0]

    @property
    def group(self) -> str:
        group = self.key.partition(".")[2]
        return "" if group == _CORE else group

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of an object, of the collection in a namespace, or of the whole collection."""
        parts = ["/apis", self.api_version] if self.group else ["/api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [self.plural, name, subresource]
        return "/".join(part for part in parts if part)


_OTHERS = (
    ApiKind(kinds.NAMESPACE, "v1", "namespaces", is_namespaced=False),
    ApiKind(kinds.SECRET, "v1", "secrets"),
    ApiKind(kinds.SERVICE, "v1", "services"),
    ApiKind(kinds.ENDPOINT_SLICE, "v1", "endpointslices"),
    ApiKind(kinds.SERVICE_ACCOUNT, "v1", "serviceaccounts"),
    ApiKind(kinds.CONFIG_MAP, "v1", "configmaps"),
    ApiKind(kinds.DAEMON_SET, "v1", "daemonsets"),
    ApiKind(kinds.APPLICATION, "v1alpha1", "applications"),
    ApiKind(kinds.APP_PROJECT, "v1alpha1", "appprojects"),
    ApiKind(kinds.TENANT_CONTROL_PLANE, "v1alpha1", "tenantcontrolplanes"),
    ApiKind(kinds.NODE_MAINTENANCE, "v1alpha1", "nodemaintenances"),
    ApiKind(kinds.CIDR_POOL, "v1alpha1", "cidrpools"),
    ApiKind(kinds.IP_POOL, "v1alpha1", "ippools"),
    ApiKind(kinds.NETWORK_ATTACHMENT, "v1", "network-attachment-definitions"),
    ApiKind(kinds.CERTIFICATE, "v1", "certificates"),
    ApiKind(kinds.ISSUER, "v1", "issuers"),
)

API_KINDS: Mapping[str, ApiKind] = {
    each.key: each
    for each in (
        *(ApiKind(f"{kind.name}.{kind.group}", kind.version, kind.plural, kind.is_namespaced) for kind in KINDS),
        *_OTHERS,
    )
}
"""Each kind by its key."""

BUILT_IN_GROUPS = frozenset(("", "apps", "discovery.k8s.io"))
"""Groups that every API server serves. The others have definitions, which may be missing or of another release."""

_PER_CLUSTER = (kinds.SERVICE_CHAIN_SET, kinds.SERVICE_INTERFACE_SET)

STATED = tuple(key for key in API_KINDS if key.endswith(".dpu.nvidia.com") and key not in _PER_CLUSTER)
"""DPF's kinds of a source cluster, which get a status."""

IN_SOURCE = (
    kinds.APP_PROJECT,
    kinds.APPLICATION,
    kinds.TENANT_CONTROL_PLANE,
    kinds.NAMESPACE,
    kinds.SECRET,
    kinds.CONFIG_MAP,
    kinds.SERVICE,
    kinds.ENDPOINT_SLICE,
    kinds.SERVICE_ACCOUNT,
    kinds.DAEMON_SET,
)
"""The kinds that the plane writes into a source cluster, beside DPF's."""

IN_DPU_CLUSTER = (
    kinds.NAMESPACE,
    *_PER_CLUSTER,
    kinds.IP_POOL,
    kinds.CIDR_POOL,
    kinds.NETWORK_ATTACHMENT,
    kinds.SECRET,
    kinds.CONFIG_MAP,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
)
"""The kinds that the plane writes into a DPU cluster."""

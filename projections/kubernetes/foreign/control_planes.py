"""TenantControlPlane of Kamaji: the control plane of a DPU cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import ForeignKind, decoded
from schemas.kubernetes.objects import Custom, Fields

READY = "Ready"


class _Version(Fields, frozen=True, gc=False):
    status: str = ""
    version: str = ""


class _Parts(Fields, frozen=True, gc=False):
    version: _Version | None = None


class _Secret(Fields, frozen=True, gc=False):
    secret_name: str = ""


class _Kubeconfig(Fields, frozen=True, gc=False):
    admin: _Secret | None = None


class _Status(Fields, frozen=True):
    control_plane_endpoint: str = ""
    kubernetes_resources: _Parts | None = None
    kubeconfig: _Kubeconfig | None = None


_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a TenantControlPlane."""
    found = decoded(_status, item.status, _Status())
    version = (found.kubernetes_resources or _Parts()).version or _Version()
    admin = (found.kubeconfig or _Kubeconfig()).admin or _Secret()
    is_ready = version.status == READY
    message = "" if is_ready else f"Kamaji reports {version.status or 'nothing yet'}"
    return {
        "ready": is_ready,
        "phase": version.status,
        "message": message,
        "version": version.version,
        "endpoint": found.control_plane_endpoint,
        "kubeconfig": admin.secret_name,
    }


TENANT_CONTROL_PLANE = ForeignKind(
    "TenantControlPlane.kamaji.clastix.io", "kamaji.clastix.io/v1alpha1", "tenantcontrolplanes", observe
)

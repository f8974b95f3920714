"""DPUServiceCredentialRequest: a Secret with a token for a cluster, which is renewed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.resources.dpf.names import SERVICES, SHARED, VERSION
from schemas.resources.dpf.types import AGE, PHASE_OF_READY, READY, Conditions, ObjectMeta, Time, named
from schemas.resources.kinds import Kind
from schemas.resources.model import Model

FINALIZER = f"{SHARED}/dpuservicecredentialrequest"
CONDITIONS = ("Ready", "ServiceAccountReconciled", "SecretReconciled")
MANAGED_BY = f"{SERVICES}/managed-by-controller"
"""Label of ServiceAccounts and Secrets, with the next two: the request that they belong to."""
REQUEST_NAME = f"{SERVICES}/credential-request-name"
REQUEST_NAMESPACE = f"{SERVICES}/credential-request-namespace"
DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"


class NamespacedName(Model):
    """An object; without a namespace it is in `default`."""

    name: str
    namespace: str | None = None


class DPUServiceCredentialRequestSpec(Model):
    """The credentials."""

    service_account: NamespacedName
    duration: Annotated[str | None, Field(pattern=DURATION)] = None
    """The life of a token: at least 10 minutes. It is renewed after 24 hours at the latest."""
    target_cluster: NamespacedName | None = None
    """The DPUCluster that the token is for; by default this cluster."""
    type: Literal["kubeconfig", "tokenFile"]
    """The form of the Secret: a kubeconfig, or a token with the address of the cluster."""
    secret: NamespacedName
    metadata: ObjectMeta | None = None
    """Labels and annotations of the Secret."""


class DPUServiceCredentialRequestStatus(Model):
    """The credentials that are in the Secret."""

    conditions: Conditions = None
    service_account: str | None = None
    target_cluster: str | None = None
    target_cluster_uid: Annotated[str | None, Field(alias="targetClusterUID")] = None
    expiration_timestamp: Time | None = None
    issued_at: Time | None = None
    secret: str | None = None


class DPUServiceCredentialRequest(Model):
    """A Secret with credentials of a ServiceAccount."""

    model_config = named(63)

    spec: DPUServiceCredentialRequestSpec | None = None
    status: DPUServiceCredentialRequestStatus | None = None


DPU_SERVICE_CREDENTIAL_REQUEST = Kind(
    name="DPUServiceCredentialRequest",
    plural="dpuservicecredentialrequests",
    model=DPUServiceCredentialRequest,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(READY, PHASE_OF_READY, AGE),
)

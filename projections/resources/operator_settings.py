"""The settings of a DPFOperatorConfig that derivations use. There is one for a source; of several the oldest counts."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from projections.resources.kinds import DPF_OPERATOR_CONFIG
from projections.resources.specs import Spec, read
from projections.resources.state import LOCAL, Resource, ResourcesState, object_id

NAMESPACE = "dpf-operator-system"
"""The namespace of DPF's objects if no DPFOperatorConfig says otherwise: the one of its guides."""


class Overrides(Spec, frozen=True):
    """Settings for advanced use."""

    argo_cd_namespace: str | None = msgspec.field(default=None, name="argoCDNamespace")
    paused: bool | None = None
    provisioning_issuer_ca_secret_name: str | None = msgspec.field(default=None, name="provisioningIssuerCASecretName")


class ProvisioningController(Spec, frozen=True):
    """Settings of the provisioning of DPUs."""

    custom_ca_secret_name: str | None = msgspec.field(default=None, name="customCASecretName")


class OperatorConfigSpec(Spec, frozen=True):
    """A DPFOperatorConfig."""

    overrides: Overrides | None = None
    image_pull_secrets: tuple[str, ...] | None = None
    provisioning_controller: ProvisioningController | None = None


class OperatorSettings(NamedTuple):
    """Where Applications and the clusters of Argo CD are, and which Secrets are for pulling images."""

    namespace: str = NAMESPACE
    argo_cd_namespace: str = NAMESPACE
    pull_secrets: tuple[str, ...] = ()
    is_known: bool = True
    """Whether there is a DPFOperatorConfig. Without one in a source cluster, it is not known where Argo CD is."""


def settings_of(state: ResourcesState, source: str) -> OperatorSettings:
    """The settings of a source. One that is being deleted counts until it is gone: services go before it. A plane
    without Kubernetes needs no DPFOperatorConfig."""
    rows = state.objects.rows
    configs = [(rows[key].created_ms, key) for key in state.of_kind(source, DPF_OPERATOR_CONFIG)]
    if not configs:
        return OperatorSettings(is_known=source == LOCAL)
    _, key = min(configs)
    return operator_settings(key, rows[key])


def operator_settings(key: str, row: Resource) -> OperatorSettings:
    """The settings of a DPFOperatorConfig. One that cannot be read counts by its namespace only."""
    namespace = object_id(key).namespace
    spec = read(OperatorConfigSpec, row)
    if isinstance(spec, str):
        return OperatorSettings(namespace, namespace)
    given = spec.overrides.argo_cd_namespace if spec.overrides else None
    return OperatorSettings(namespace, given or namespace, tuple(sorted({*(spec.image_pull_secrets or ())})))

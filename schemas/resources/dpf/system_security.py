"""The security part of a DPFOperatorConfig: identities, certificate authorities and the isolation of pods."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf import operator_components as components
from schemas.resources.dpf.encryption import VaultKMS
from schemas.resources.model import Model, validated


class TrustBundleReference(Model):
    """A ConfigMap with a trust bundle under bundle.pem or bundle.spiffe."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    format: Literal["pem", "spiffe"] = "pem"


_SERVER = "^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*:[1-9][0-9]{0,4}$"


Template = Annotated[str, Field(min_length=1, max_length=2048)]


class SPIFFE(Model):
    """Identities of DPU agents from SPIRE."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                f"self.spireServerAddress.matches('{_SERVER}') && int(self.spireServerAddress.split(':')[1]) <= 65535",
                "spireServerAddress must be host:port with a valid DNS-1123 host and a port up to 65535",
            )
        )
    )

    spire_server_address: Annotated[str, Field(min_length=1, max_length=263)]
    spire_trust_domain: Annotated[str, Field(min_length=1, max_length=253, pattern=components.DOMAIN)]
    dpu_agent_spiffe_id_template: Annotated[Template | None, Field(alias="dpuAgentSPIFFEIDTemplate")] = None
    dpu_agent_exchanged_spiffe_id_template: Annotated[
        Template | None, Field(alias="dpuAgentExchangedSPIFFEIDTemplate")
    ] = None
    dpu_service_spiffe_id_template: Annotated[Template | None, Field(alias="dpuServiceSPIFFEIDTemplate")] = None
    dpu_service_exchanged_spiffe_id_template: Annotated[
        Template | None, Field(alias="dpuServiceExchangedSPIFFEIDTemplate")
    ] = None
    token_exchange_endpoint: Annotated[str | None, Field(max_length=2048, pattern=r'^https://[^[:space:]"\\]+$')] = None
    spire_controller_manager_class_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    kube_api_audience: Annotated[str, Field(alias="kubeAPIAudience", min_length=1, max_length=512)]
    spire_oidc_url: Annotated[str, Field(alias="spireOIDCURL", min_length=1, max_length=2048)]
    trust_bundle: TrustBundleReference


class CertManagement(Model):
    """The certificate authorities that components trust."""

    trust_bundle_config_map_name: Annotated[str, Field(min_length=1, max_length=253, pattern=components.DOMAIN)] = (
        "dpf-ca-trust-bundle"
    )


class SystemSecurity(Model):
    """Settings for security."""

    privileged_pod_enforcement: bool = True
    """Whether privileged pods of services that are not allowed to have them are refused."""
    kata: components.Kata | None = None
    spiffe: SPIFFE | None = None
    vault_kms: Annotated[VaultKMS | None, Field(alias="vaultKMS")] = None
    cert_management: CertManagement | None = None


class Anchor(Model):
    """The issuer that certificates descend from."""

    name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    kind: Literal["Issuer", "ClusterIssuer"] | None = None
    group: Annotated[str | None, Field(min_length=1, max_length=253)] = None


class CertManagementStatus(Model):
    """The certificate authority in use."""

    anchor: Anchor | None = None


class SecurityStatus(Model):
    """The security settings in use."""

    cert_management: CertManagementStatus | None = None

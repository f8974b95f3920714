"""DPFOperatorConfig: the settings of an installation. There is one object."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf import operator_components as components
from schemas.resources.dpf.encryption import EncryptionAtRest
from schemas.resources.dpf.names import OPERATOR, SHARED, VERSION
from schemas.resources.dpf.provisioning_settings import ProvisioningController
from schemas.resources.dpf.system_security import SecurityStatus, SystemSecurity
from schemas.resources.dpf.types import (
    AGE,
    MAX_MTU,
    MIN_MTU,
    PHASE_OF_READY,
    READY,
    Conditions,
    DeploymentMode,
    Name,
    ObservedGeneration,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

FINALIZER = f"{SHARED}/dpfoperatorconfig"
CONDITIONS = (
    "Ready",
    "PreUpgradeValidationReady",
    "ImagePullSecretsReconciled",
    "SystemComponentsReconciled",
    "SystemComponentsReady",
    "DPUAgentIdentityTemplatesValid",
    "CATrustBundleReady",
    "CertManagementReady",
    "DeprecatedFieldsNotInUse",
)
OOB_BRIDGE = "br-dpu"

MTU = Annotated[int, Field(ge=MIN_MTU, le=MAX_MTU)]

_ZERO_TRUST = "has(self.deploymentMode) && self.deploymentMode == 'zero-trust'"
_HOST_TRUSTED = "has(self.deploymentMode) && self.deploymentMode == 'host-trusted'"
_REDFISH = (
    "(has(self.provisioningController.installInterface) && "
    "has(self.provisioningController.installInterface.installViaRedfish))"
)

_ENCRYPTION = "self.kamajiClusterManager.etcdEncryptionAtRest"
_VAULT = f"has(self.kamajiClusterManager) && has({_ENCRYPTION}) && {_ENCRYPTION}.provider == 'vaultKMS'"


class Overrides(Model):
    """Settings for advanced use."""

    paused: bool | None = None
    """Whether nothing is reconciled."""
    dpu_cni_bin_path: Annotated[str | None, Field(alias="dpuCNIBinPath")] = None
    dpu_cni_path: Annotated[str | None, Field(alias="dpuCNIPath")] = None
    dpu_openv_switch_run_path: Annotated[str | None, Field(alias="dpuOpenvSwitchRunPath")] = None
    dpu_openv_switch_bin_path: Annotated[str | None, Field(alias="dpuOpenvSwitchBinPath")] = None
    dpu_openv_switch_shared_path: Annotated[str | None, Field(alias="dpuOpenvSwitchSystemSharedPath")] = None
    dpu_openv_switch_shared_lib64_path: Annotated[Name | None, Field(alias="dpuOpenvSwitchSystemSharedLib64Path")] = (
        None
    )
    dpu_linker_cache_path: Name | None = None
    dpu_opt_library_path: Name | None = None
    flannel_skip_cni_config_installation: Annotated[bool | None, Field(alias="flannelSkipCNIConfigInstallation")] = None
    kubernetes_api_server_vip: Annotated[str | None, Field(alias="kubernetesAPIServerVIP")] = None
    """The address at which DPUs reach the API server of the hosts' cluster."""
    kubernetes_api_server_port: Annotated[int | None, Field(alias="kubernetesAPIServerPort")] = None
    provisioning_issuer_ca_secret_name: Annotated[Name | None, Field(alias="provisioningIssuerCASecretName")] = None
    argo_cd_namespace: Annotated[str | None, Field(alias="argoCDNamespace", min_length=1, max_length=63)] = None


class Networking(Model):
    """The networks of the system."""

    control_plane_mtu: Annotated[MTU, Field(alias="controlPlaneMTU")] = 1500
    """The MTU of the management network."""
    high_speed_mtu: Annotated[MTU, Field(alias="highSpeedMTU")] = 1500
    """The MTU of the ports of DPUs."""
    dpu_node_oob_bridge_name: Annotated[
        str, Field(alias="dpuNodeOOBBridgeName", min_length=1, max_length=15, pattern=r"^[a-z][a-z0-9-]*$")
    ] = OOB_BRIDGE
    """The bridge of a host for the management of its DPUs."""


class Monitoring(Model):
    """Components for monitoring."""

    disable: bool | None = None
    """Whether nothing is monitored."""
    kube_state_metrics: components.Daemon | None = None
    node_problem_detector: components.Daemon | None = None
    open_telemetry_collector: components.Collector | None = None


class KamajiClusterManager(components.Controller):
    """The manager of DPU clusters that Kamaji runs."""

    etcd_encryption_at_rest: EncryptionAtRest | None = None


class DPFOperatorConfigSpec(Model):
    """The settings. deploymentMode is required by later releases; release 24.10 knows host-trusted only."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                f"!({_ZERO_TRUST}) || {_REDFISH}",
                "deploymentMode zero-trust requires provisioningController.installInterface.installViaRedfish",
            ),
            (
                f"!({_HOST_TRUSTED}) || !{_REDFISH}",
                "deploymentMode host-trusted does not support "
                "provisioningController.installInterface.installViaRedfish",
            ),
            (
                f"!({_ZERO_TRUST}) || !has(self.networking) || self.networking.dpuNodeOOBBridgeName == 'br-dpu'",
                "dpuNodeOOBBridgeName is only configurable in host-trusted mode",
            ),
            (
                f"!({_ZERO_TRUST}) || !has(self.networking) || self.networking.controlPlaneMTU <= 1500",
                "controlPlaneMTU must not exceed 1500 in zero-trust mode because DPU OOB interfaces do not support "
                "jumbo frames",
            ),
            (
                f"!has(self.security) || !has(self.security.spiffe) || ({_ZERO_TRUST})",
                "spiffe configuration requires deploymentMode=zero-trust",
            ),
            (
                "!has(oldSelf.deploymentMode) || "
                "(has(self.deploymentMode) && self.deploymentMode == oldSelf.deploymentMode)",
                "deploymentMode is immutable: DPUs keep the mode that they were provisioned in",
            ),
            (
                f"!({_VAULT}) || (has(self.security) && has(self.security.vaultKMS) && "
                "(!has(self.security.vaultKMS.disable) || !self.security.vaultKMS.disable))",
                "kamajiClusterManager.etcdEncryptionAtRest.provider vaultKMS requires security.vaultKMS to be enabled",
            ),
            (
                "!has(oldSelf.security) || !has(oldSelf.security.spiffe) || "
                "(has(self.security) && has(self.security.spiffe))",
                "spec.security.spiffe cannot be removed once set: DPUs with such identities depend on it",
            ),
        )
    )

    overrides: Overrides | None = None
    networking: Annotated[Networking | None, Field(json_schema_extra={DEFAULT: {"controlPlaneMTU": 1500}})] = None
    monitoring: Monitoring | None = None
    security: SystemSecurity | None = None
    image_pull_secrets: list[str] | None = None
    """Secrets that are copied to every DPU cluster."""
    deployment_mode: DeploymentMode | None = None
    """Whether hosts are trusted with the installation of their DPUs, or only BMCs are used."""
    provisioning_controller: ProvisioningController
    dpu_service_controller: components.ServiceController | None = None
    service_set_controller: components.SetController | None = None
    dpu_detector: components.Detector | None = None
    multus: components.CNI | None = None
    sriov_device_plugin: components.DevicePlugin | None = None
    flannel: components.Flannel | None = None
    ovs_cni: Annotated[components.CNI | None, Field(alias="ovsCNI")] = None
    ovs_helper: components.OVSHelper | None = None
    nvipam: components.NVIPAM | None = None
    cni_installer: components.Installer | None = None
    core_dns: Annotated[components.CoreDNS | None, Field(alias="coreDNS")] = None
    sfc_controller: components.ChainController | None = None
    kamaji_cluster_manager: KamajiClusterManager | None = None
    static_cluster_manager: components.Controller | None = None
    node_sriov_device_plugin_controller: Annotated[
        components.HostDevicePluginController | None, Field(alias="nodeSRIOVDevicePluginController")
    ] = None


class DPFOperatorConfigStatus(Model):
    """The state of the installation."""

    conditions: Conditions = None
    observed_generation: ObservedGeneration = None
    version: str | None = None
    target_version: str | None = None
    """The version that an upgrade goes to."""
    security: SecurityStatus | None = None


class DPFOperatorConfig(Model):
    """The settings of an installation."""

    spec: DPFOperatorConfigSpec | None = None
    status: DPFOperatorConfigStatus | None = None


DPF_OPERATOR_CONFIG = Kind(
    name="DPFOperatorConfig",
    plural="dpfoperatorconfigs",
    model=DPFOperatorConfig,
    group=OPERATOR,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(READY, PHASE_OF_READY, AGE),
)

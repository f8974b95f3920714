"""The provisioning controller's part of a DPFOperatorConfig: how DPUs are installed, and how many at a time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.device import FactoryReset
from schemas.resources.dpf.operator_components import Container, Image, Replicated
from schemas.resources.dpf.types import Int32, Name
from schemas.resources.model import Model, validated

DURATION = r"^([0-9]+(h|m|s|ms|us|µs|ns))+$"

Duration = Annotated[str, Field(pattern=DURATION, json_schema_extra={"format": "duration"})]
RegistryURL = Annotated[str, Field(pattern="^https?://")]


class HostInstaller(Model):
    """An installation through the host. It has no settings."""


class ImageRegistry(Model):
    """The image store, as an earlier release configured it. Deprecated."""

    disable: bool | None = None
    port: int | None = None


class RedfishInstaller(Model):
    """An installation through the BMC of the DPU."""

    bfb_registry_address: Name | None = None
    """The address of the image store. Deprecated."""
    bfb_registry: ImageRegistry | None = None
    skip_dpu_node_discovery: Annotated[bool, Field(alias="skipDPUNodeDiscovery")] = True
    """Whether a found DPU gets no DPUNode."""
    discovered_dpu_device_bmc_factory_reset_policy: Annotated[
        FactoryReset | None, Field(alias="discoveredDPUDeviceBMCFactoryResetPolicy")
    ] = None
    """The policy of DPUDevices that a discovery makes."""


class InstallInterfaces(Model):
    """The way to the device: exactly one. installViaGNOI is the older name of installViaHostAgent."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "(has(self.installViaHostAgent) || has(self.installViaGNOI)) != has(self.installViaRedfish)",
                "exactly one of installViaHostAgent, installViaGNOI or installViaRedfish must be set",
            )
        )
    )

    install_via_gnoi: Annotated[HostInstaller | None, Field(alias="installViaGNOI")] = None
    install_via_host_agent: HostInstaller | None = None
    install_via_redfish: RedfishInstaller | None = None


class Registry(Model):
    """The addresses of the image store."""

    address: RegistryURL | None = None
    """An older address of the image store."""
    port: Annotated[int | None, Field(ge=1, le=65_535)] = None
    """The port of the image store."""
    load_balancer_address: RegistryURL | None = None
    """The address at which hosts and BMCs reach it."""


class ProvisioningController(Replicated):
    """How DPUs are installed."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!has(self.image) || !has(self.controller) || !has(self.controller.image)",
                "only either 'image' (deprecated) or 'controller.image' can be set, but not both",
            ),
            (
                "!(has(self.bfCFGTemplateConfigMap) && has(self.enableDynamicBFCFGTemplates) && "
                "self.enableDynamicBFCFGTemplates)",
                "bfCFGTemplateConfigMap and enableDynamicBFCFGTemplates are mutually exclusive",
            ),
        )
    )

    image: Image | None = None
    """The image of the controller. Deprecated."""
    controller: Container | None = None
    bf_cfg_template_config_map: Annotated[str | None, Field(alias="bfCFGTemplateConfigMap")] = None
    """A template for bf.cfg. Deprecated."""
    enable_dynamic_bf_cfg_templates: Annotated[bool | None, Field(alias="enableDynamicBFCFGTemplates")] = None
    """Whether templates for bf.cfg are ConfigMaps with the labels of an image or cluster."""
    bfb_pvc_name: Annotated[Name | None, Field(alias="bfbPVCName")] = None
    """The volume of the image store."""
    dms_timeout: Annotated[int | None, Field(ge=1)] = None
    """The time that the installer of a host has for a response, in seconds."""
    custom_ca_secret_name: Annotated[str | None, Field(alias="customCASecretName")] = None
    """The Secret with a certificate authority."""
    install_interface: InstallInterfaces | None = None
    registry: Registry | None = None
    max_dpu_parallel_installations: Annotated[Int32, Field(alias="maxDPUParallelInstallations", ge=1)] = 50
    """DPUs that may be installed at the same time."""
    multi_dpu_operations_sync_wait_time: Annotated[Duration, Field(alias="multiDPUOperationsSyncWaitTime")] = "30s"
    """The time that the first DPU of a host waits for others, so that they share a drain and a reboot."""
    max_unavailable_dpu_nodes: Annotated[Int32, Field(alias="maxUnavailableDPUNodes", ge=1)] = 50
    """Hosts that may be unavailable at the same time."""
    os_install_retries: Annotated[Int32 | None, Field(ge=1)] = None
    """By default 2."""
    pre_install_agent_registration_timeout: Duration = "30s"
    """The time that the agent of a DPU has to report before the system is installed again."""
    os_install_timeout: Duration | None = None
    """By default 60 minutes."""
    firmware_update_timeout: Duration | None = None
    """By default 45 minutes."""
    node_effect_removal_timeout: Duration | None = None
    """By default there is no limit."""
    host_agent_dns_policy: Annotated[
        Literal["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"] | None, Field(alias="hostAgentDNSPolicy")
    ] = None
    """The name resolution of the agent on hosts."""
    bmc_server_cert_renew_before: Duration | None = None
    """By default 720 hours."""

"""The components of a DPFOperatorConfig: whether each is installed, with which image, chart and resources.

The plane installs none of DPF's components. It reads the settings of those whose work it does, and keeps the rest, so
that users apply their configuration unchanged.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.helm import REPOSITORY
from schemas.resources.dpf.types import Int32, Quantity, StringMap
from schemas.resources.model import Model, validated

_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|[-]+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*[:][[:xdigit:]]{32,}"
IMAGE = rf"^((?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::([\w][\w.-]{{0,127}}))?(?:@({_DIGEST}))?$"
"""The pattern of a reference to a container image."""
DOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

Image = Annotated[str, Field(pattern=IMAGE)]
Chart = Annotated[str, Field(pattern=REPOSITORY)]


def either_image(part: str) -> ConfigDict:
    """The rule that the older field `image` and the image of a part are not both given."""
    rule = f"!has(self.image) || !has(self.{part}) || !has(self.{part}.image)"
    sentence = f"only either 'image' (deprecated) or '{part}.image' can be set, but not both"
    return ConfigDict(json_schema_extra=validated((rule, sentence)))


class Resources(Model):
    """Amounts of CPU and memory."""

    cpu: Quantity | None = None
    memory: Quantity | None = None


class ResourceRequirements(Model):
    """Resources that a container asks for, and its limits."""

    requests: Resources | None = None
    limits: Resources | None = None


class ImageOnly(Model):
    """A container with an image of its own."""

    image: Image | None = None


class Container(ImageOnly):
    """A container with an image and resources of its own."""

    resources: ResourceRequirements | None = None


class Component(Model):
    """A component that may be switched off."""

    disable: bool | None = None


class Replicated(Component):
    """A component of several replicas, one of which leads."""

    replicas: Annotated[Int32, Field(ge=1, le=3)] = 2


class Charted(Component):
    """A component from a Helm chart."""

    helm_chart: Chart | None = None


class Controller(Replicated):
    """A controller on the cluster of the hosts."""

    model_config = either_image("controller")

    image: Image | None = None
    controller: Container | None = None


class ServiceController(Controller):
    """The controller of services."""

    disable_dpu_ready_taints: Annotated[bool | None, Field(alias="disableDPUReadyTaints")] = None
    """Whether hosts stay without the taint that keeps workload away until their DPUs are ready."""
    disable_host_network_ready_no_execute_taints: bool | None = None
    """Whether hosts without a ready network keep their pods; by default they do."""


class SetController(Controller, Charted):
    """The controller of sets in DPU clusters."""


class Collectors(Model):
    """What the detector looks for (release 24.10)."""

    ps_id: Annotated[bool | None, Field(alias="psID")] = None


class Detector(Component):
    """The detector of DPUs on hosts."""

    model_config = either_image("daemon")

    image: Image | None = None
    daemon: Container | None = None
    collectors: Collectors | None = None


class FlannelImages(Model):
    """Images of Flannel. Deprecated."""

    flannel_cni: Annotated[str, Field(alias="flannelCNI", min_length=1)]
    kube_flannel: Annotated[str, Field(min_length=1)]


class Flannel(Charted):
    """The network of pods in DPU clusters."""

    cni: ImageOnly | None = None
    daemon: Container | None = None
    image: FlannelImages | None = None
    pod_cidr: Annotated[str | None, Field(alias="podCIDR")] = None


class CNI(Charted):
    """A component with a CNI plugin."""

    model_config = either_image("cni")

    image: Image | None = None
    cni: Container | None = None


class DevicePlugin(Charted):
    """The plugin for the functions of a DPU."""

    model_config = either_image("deviceplugin")

    image: Image | None = None
    deviceplugin: Container | None = None


class NVIPAM(SetController):
    """The controller of address pools in DPU clusters."""

    node: Container | None = None


class ChainController(Charted):
    """The controller of chains on each DPU."""

    model_config = either_image("controller")

    image: Image | None = None
    controller: Container | None = None
    secure_flow_deletion_timeout: str | None = None
    """The time without the API server after which all flows are deleted."""


class OVSHelper(Charted):
    """A helper of the virtual switch (release 24.10)."""

    image: Image | None = None


class Installer(Charted):
    """The installer of CNI plugins."""

    installer: Container | None = None


class CoreDNS(Charted):
    """The name service of DPU clusters."""

    deployment: Container | None = None
    upstream_nameservers: Annotated[str | None, Field(min_length=1)] = None


class HostDevicePlugin(Model):
    """Settings of the plugin for the functions that hosts see."""

    image: Image | None = None
    init_image: Image | None = None
    default_resource_prefix: Annotated[str | None, Field(pattern=DOMAIN)] = None


class HostDevicePluginController(Replicated):
    """The controller of the plugins on hosts."""

    controller: Container | None = None
    device_plugin: HostDevicePlugin | None = None


class Daemon(Charted):
    """A component for monitoring."""

    daemon: Container | None = None


class Endpoint(Model):
    """Where logs or metrics of DPUs are sent."""

    endpoint: str


class Collector(Daemon):
    """The collector of logs and metrics on DPUs."""

    logging: Endpoint | None = None
    metrics: Endpoint | None = None


class Kata(Charted):
    """Virtual machines for pods."""

    daemon: ImageOnly | None = None
    node_selector: StringMap | None = None
    shims: list[Literal["qemu"]] | None = None
    containerd_config_file_name: str | None = None

"""The system's components that a DPFOperatorConfig installs in DPU clusters, each as a DPUService of its own.

The plane has no charts of its own: a component is installed if the configuration names its chart and does not disable
it. Names, values and labels are those of DPF's operator (internal/operator/inventory), whose chart has all components,
each switched off unless its value `enabled` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from projections.resources.deployments.values import merged
from projections.resources.kinds import DPU_SERVICE
from projections.resources.operator_settings import Overrides
from projections.resources.specs import JSON, Spec, read
from projections.resources.state import ObjectId, Resource, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import COMPONENT

MTU = 1500
_FLANNEL_NETWORK = "10.244.0.0/14"
_CNI_BIN, _CNI_CONFIG = "/opt/cni/bin", "/etc/cni/net.d/"
DISABLED, NO_CHART = "disabled", "without a helmChart"
"""Why a component is not installed."""
_CONTAINERS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "flannel": (("daemon", "flannel.image", "flannel.resources"), ("cni", "flannel.image_cni", "")),
    "multus": (("cni", "kubeMultusDs.image", "kubeMultusDs.kubeMultus.resources"),),
    "sriov-device-plugin": (
        (
            "deviceplugin",
            "kubeSriovDevicePlugin.kubeSriovdp.image",
            "kubeSriovDevicePlugin.kubeSriovdp.resources",
        ),
    ),
    "ovs-cni": (("cni", "arm64.image", "arm64.ovsCniMarker.resources"),),
    "nvidia-k8s-ipam": (
        ("controller", "nvIpam.image", "nvIpam.controller.resources"),
        ("node", "nvIpam.image", "nvIpam.node.resources"),
    ),
    "cni-installer": (("installer", "cniInstaller.image", "cniInstaller.resources"),),
    "servicechainset-controller": (
        ("controller", "controllerManager.manager.image", "controllerManager.manager.resources"),
    ),
    "sfc-controller": (("controller", "controllerManager.manager.image", "controllerManager.manager.resources"),),
    "kube-state-metrics": (("daemon", "image", "resources"),),
    "node-problem-detector": (("daemon", "image", "resources"),),
    "opentelemetry-collector": (("daemon", "image", "resources"),),
    "kata-containers": (("daemon", "image", ""),),
}
"""The containers of each component: the field of the configuration, and the paths of image and resources in the values
of DPF's charts."""
_OLD_FLANNEL_IMAGES = {"daemon": "kubeFlannel", "cni": "flannelCNI"}
_SWITCH_RUN, _SWITCH_BIN, _SWITCH_LIBRARIES = "/var/run/openvswitch/", "/usr/bin/", "/lib"


class Container(Spec, frozen=True):
    """A container with an image and resources of its own."""

    image: str | None = None
    resources: JSON | None = None


class Endpoint(Spec, frozen=True):
    """Where logs or metrics of DPUs are sent."""

    endpoint: str | None = None


class ComponentSpec(Spec, frozen=True):
    """A component with a chart. The containers are those of all components; `image` is an older form, which may have
    the images of both containers of Flannel."""

    disable: bool | None = None
    helm_chart: str | None = None
    pod_cidr: str | None = msgspec.field(default=None, name="podCIDR")
    secure_flow_deletion_timeout: str | None = None
    image: str | JSON | None = None
    daemon: Container | None = None
    cni: Container | None = None
    controller: Container | None = None
    node: Container | None = None
    deviceplugin: Container | None = None
    installer: Container | None = None
    logging: Endpoint | None = None
    metrics: Endpoint | None = None


class Networking(Spec, frozen=True):
    """The sizes of packets."""

    control_plane_mtu: int = msgspec.field(default=MTU, name="controlPlaneMTU")
    high_speed_mtu: int = msgspec.field(default=MTU, name="highSpeedMTU")


class Paths(Overrides, frozen=True):
    """Folders on DPUs."""

    dpu_cni_bin_path: str | None = msgspec.field(default=None, name="dpuCNIBinPath")
    dpu_cni_path: str | None = msgspec.field(default=None, name="dpuCNIPath")
    dpu_openv_switch_run_path: str | None = msgspec.field(default=None, name="dpuOpenvSwitchRunPath")
    dpu_openv_switch_bin_path: str | None = msgspec.field(default=None, name="dpuOpenvSwitchBinPath")
    dpu_openv_switch_shared_path: str | None = msgspec.field(default=None, name="dpuOpenvSwitchSystemSharedPath")
    dpu_openv_switch_lib64_path: str | None = msgspec.field(default=None, name="dpuOpenvSwitchSystemSharedLib64Path")
    flannel_skip: bool | None = msgspec.field(default=None, name="flannelSkipCNIConfigInstallation")


class Monitoring(Spec, frozen=True):
    """The components for monitoring."""

    disable: bool | None = None
    kube_state_metrics: ComponentSpec | None = None
    node_problem_detector: ComponentSpec | None = None
    open_telemetry_collector: ComponentSpec | None = None

    def component(self, given: ComponentSpec | None) -> ComponentSpec | None:
        """One of them, disabled if all are."""
        return msgspec.structs.replace(given or ComponentSpec(), disable=True) if self.disable else given


class SystemSecurity(Spec, frozen=True):
    """The components for security."""

    kata: ComponentSpec | None = None


class SystemSpec(Spec, frozen=True):
    """A DPFOperatorConfig with its components in DPU clusters."""

    overrides: Paths | None = None
    networking: Networking | None = None
    image_pull_secrets: tuple[str, ...] | None = None
    multus: ComponentSpec | None = None
    sriov_device_plugin: ComponentSpec | None = None
    flannel: ComponentSpec | None = None
    ovs_cni: ComponentSpec | None = msgspec.field(default=None, name="ovsCNI")
    nvipam: ComponentSpec | None = None
    cni_installer: ComponentSpec | None = None
    sfc_controller: ComponentSpec | None = None
    service_set_controller: ComponentSpec | None = None
    ovs_helper: ComponentSpec | None = None
    monitoring: Monitoring | None = None
    security: SystemSecurity | None = None


class _Component(NamedTuple):
    """A component by the field of the configuration. `is_privileged` says whether its containers are."""

    name: str
    given: ComponentSpec | None
    values: JSON
    is_privileged: bool = True

    @property
    def off(self) -> str:
        """Why the component is not installed; empty if it is."""
        if self.given is not None and self.given.disable:
            return DISABLED
        return "" if self.given is not None and self.given.helm_chart else NO_CHART


def system_services(key: str, row: Resource) -> list[Wanted] | str:
    """The DPUServices of a DPFOperatorConfig, or the fault why they cannot be derived."""
    spec, at = read(SystemSpec, row), object_id(key)
    if isinstance(spec, str):
        return spec
    wanted = []
    for component in _components(spec):
        if component.off or component.given is None:
            continue
        source = chart_source(component.given.helm_chart or "")
        if isinstance(source, str):
            return f"{component.name}: {source}"
        wanted.append(_service(at, component, source, spec.image_pull_secrets or ()))
    return wanted


def components_off(spec: SystemSpec) -> dict[str, list[str]]:
    """The names of the components that are not installed, by reason."""
    found: dict[str, list[str]] = {}
    for component in _components(spec):
        if component.off:
            found.setdefault(component.off, []).append(component.name)
    return found


def chart_source(text: str) -> JSON | str:
    """The chart that `REPOSITORY/CHART:VERSION` names, or what is wrong with the text."""
    before, colon, version = text.rpartition(":")
    repository, slash, chart = before.rpartition("/")
    if not colon or not slash or not version or not chart or "/" in version or repository.endswith("/"):
        return f"helmChart: {text!r} must be REPOSITORY/CHART:VERSION"
    return {"repoURL": repository, "chart": chart, "version": version}


def _service(at: ObjectId, component: _Component, source: JSON, pull_secrets: tuple[str, ...]) -> Wanted:
    name = component.name
    own: JSON = {"enabled": True}
    if pull_secrets:
        own["imagePullSecrets"] = [{"name": each} for each in pull_secrets]
    values = merged(merged(component.values, own), _of_containers(component))
    spec = {
        "helmChart": {"source": source, "values": {name: values}},
        "security": {"privileged": component.is_privileged},
    }
    return Wanted(ObjectId(at.source, DPU_SERVICE, at.namespace, name), at.key, spec, {COMPONENT: name})


def _of_containers(component: _Component) -> JSON:
    """The images and resources of a component's containers, where its chart has them."""
    given, found = component.given or ComponentSpec(), JSON()
    for number, (field, image_path, resources_path) in enumerate(_CONTAINERS.get(component.name, ())):
        container: Container = getattr(given, field) or Container()
        image = container.image
        if image is None and isinstance(given.image, str) and number == 0:
            image = given.image
        if image is None and isinstance(given.image, dict):
            image = given.image.get(_OLD_FLANNEL_IMAGES.get(field, ""))
        if isinstance(image, str) and image:
            found = merged(found, _at(image_path, _image(image)))
        if container.resources and resources_path:
            found = merged(found, _at(resources_path, container.resources))
    return found


def _image(text: str) -> JSON:
    """An image as charts take it. A colon before the last slash is the port of a registry."""
    repository, slash, name = text.rpartition("/")
    name, colon, tag = name.partition(":")
    return {"repository": f"{repository}{slash}{name}"} | ({"tag": tag} if colon else {})


def _at(path: str, value: JSON) -> JSON:
    """A value at a path of fields."""
    for field in reversed(path.split(".")):
        value = {field: value}
    return value


def _components(spec: SystemSpec) -> tuple[_Component, ...]:
    paths, networking = spec.overrides or Paths(), spec.networking or Networking()
    binaries = {"cniBinDir": paths.dpu_cni_bin_path or _CNI_BIN}
    config = binaries | {"cniConfDir": paths.dpu_cni_path or _CNI_CONFIG}
    switch = {"openvSwitchRunDir": paths.dpu_openv_switch_run_path or _SWITCH_RUN}
    libraries = {
        "openvSwitchBinDir": paths.dpu_openv_switch_bin_path or _SWITCH_BIN,
        "openvSwitchSharedLibraryDir": paths.dpu_openv_switch_shared_path or _SWITCH_LIBRARIES,
    }
    if paths.dpu_openv_switch_lib64_path:
        libraries["openvSwitchSharedLibrary64Dir"] = paths.dpu_openv_switch_lib64_path
    network: Mapping[str, Any] = {
        "podCidr": (spec.flannel and spec.flannel.pod_cidr) or _FLANNEL_NETWORK,
        "flannel": config
        | {
            "mtu": str(networking.control_plane_mtu),
            "skipCNIConfigInstallation": True if paths.flannel_skip is None else paths.flannel_skip,
        },
    }
    timeout = (spec.sfc_controller and spec.sfc_controller.secure_flow_deletion_timeout) or "0s"
    chains = switch | libraries | {"controllerManager": {"manager": {"secureFlowDeletionTimeout": timeout}}}
    return (
        _Component("flannel", spec.flannel, dict(network)),
        _Component("multus", spec.multus, config | {"mtu": str(networking.high_speed_mtu)}),
        _Component("sriov-device-plugin", spec.sriov_device_plugin, {}),
        _Component("ovs-cni", spec.ovs_cni, binaries | switch),
        _Component("nvidia-k8s-ipam", spec.nvipam, config),
        _Component("cni-installer", spec.cni_installer, binaries),
        _Component("servicechainset-controller", spec.service_set_controller, {}, is_privileged=False),
        _Component("sfc-controller", spec.sfc_controller, chains),
        _Component("ovs-helper", spec.ovs_helper, {}),
        *_monitoring(spec.monitoring or Monitoring()),
        _Component("kata-containers", (spec.security or SystemSecurity()).kata, {}),
    )


def _monitoring(given: Monitoring) -> Iterator[_Component]:
    collector = given.open_telemetry_collector or ComponentSpec()
    ends = [each.endpoint for each in (collector.metrics, collector.logging) if each is not None and each.endpoint]
    yield _Component("kube-state-metrics", given.component(given.kube_state_metrics), {}, is_privileged=False)
    yield _Component("node-problem-detector", given.component(given.node_problem_detector), {}, is_privileged=False)
    values = {"managementEndpoint": ends[0]} if ends else {}
    collecting = given.component(given.open_telemetry_collector)
    yield _Component("opentelemetry-collector", collecting, values, is_privileged=False)

"""The Secrets that objects name: kubeconfigs, credentials of BMCs, and Secrets for pulling images."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.control_planes.specs import DPUClusterSpec
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU_CLUSTER, DPU_DEVICE
from projections.resources.operator_settings import OperatorConfigSpec
from projections.resources.specs import Spec, read
from projections.resources.state import Resource, object_id

BMC_PASSWORD = "bmc-shared-password"
"""The Secret with the password of all BMCs, in the namespace of the DPFOperatorConfig. No field names it."""


class _DeviceSpec(Spec, frozen=True):
    bmc_credential_secret_name: str | None = None


def named_secrets(key: str, row: Resource) -> Iterator[tuple[str, str]]:
    """The namespace and the name of each Secret that an object names."""
    at = object_id(key)
    for name in _names(at.kind, row):
        if name:
            yield at.namespace, name


def _names(kind: str, row: Resource) -> Iterator[str | None]:
    if kind == DPU_CLUSTER:
        cluster = read(DPUClusterSpec, row)
        yield None if isinstance(cluster, str) else cluster.kubeconfig
    elif kind == DPU_DEVICE:
        device = read(_DeviceSpec, row)
        yield None if isinstance(device, str) else device.bmc_credential_secret_name
    elif kind == DPF_OPERATOR_CONFIG:
        yield BMC_PASSWORD
        config = read(OperatorConfigSpec, row)
        if not isinstance(config, str):
            yield from config.image_pull_secrets or ()
            yield config.overrides.provisioning_issuer_ca_secret_name if config.overrides else None
            controller = config.provisioning_controller
            yield controller.custom_ca_secret_name if controller else None

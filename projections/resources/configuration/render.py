"""Rendering of a configuration: pure, so that the same objects give the same bytes on every replica."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from itertools import count
from typing import Any

from projections.resources.configuration.cloud_init import user_data
from projections.resources.configuration.engine import expanded
from projections.resources.configuration.inputs import MASK, SIZE_MAX, Configuration, Inputs
from projections.resources.go_templates import render as go_templates
from projections.resources.go_templates.render import Fault

_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FAULTS_MAX = 5


def rendered(inputs: Inputs, *, masks_password: bool = False) -> Configuration | Fault:
    """The configuration of a DPU, or the fault why there is none. The token of the join is in `inputs`; the hash of a
    password is in the flavor, and is masked for a configuration that is shown."""
    if not _HOSTNAME.fullmatch(inputs.hostname):
        return Fault("the name of the DPU is not a host name")
    faults = [*inputs.flavor.faults()]
    if faults:
        rest = len(faults) - _FAULTS_MAX
        return Fault("; ".join(faults[:_FAULTS_MAX]) + (f"; and {rest} more" if rest > 0 else ""))
    password = inputs.flavor.password()
    if password and masks_password:
        password = MASK
    if inputs.user_template is not None:
        text = go_templates.rendered(inputs.user_template, template_data(inputs, password))
        if isinstance(text, Fault):
            return Fault(f"template for bf.cfg: {text}")
        found = Configuration(text, "")
    else:
        data = user_data(inputs, password)
        text = expanded(
            "bf.cfg",
            hostname=inputs.hostname,
            assignments=inputs.flavor.assignments(),
            user_data=data,
            delimiter=_delimiter(data),
        )
        found = Configuration(text, data)
    return _within_limits(found)


def _within_limits(found: Configuration) -> Configuration | Fault:
    try:
        size = len(found.bf_cfg.encode())
    except UnicodeEncodeError:
        return Fault("a text of the flavor is not Unicode")
    if size > SIZE_MAX:
        return Fault(f"bf.cfg has {size} bytes, more than the {SIZE_MAX} that the installer reads")
    return found


def template_data(inputs: Inputs, password: str) -> Mapping[str, Any]:
    """The values of a user's template, with the names that DPF gives them."""
    flavor, join = inputs.flavor, ""
    if inputs.join is not None:
        words = ["kubeadm", "join", inputs.join.endpoint, "--token", inputs.join.token]
        join = shlex.join([*words, "--discovery-token-ca-cert-hash", inputs.join.ca_hash, "--v=5"])
    ports = [name for number in range(inputs.physical_functions) for name in (f"p{number}", f"pf{number}hpf")]
    return {
        "KubeadmJoinCMD": join,
        "DPUHostName": inputs.hostname,
        "BFGCFGParams": [f"{name}={shlex.quote(value)}" for name, value in flavor.assignments()],
        "UbuntuPassword": shlex.quote(password) if password else "",
        "NVConfigParams": [
            {"Device": each.device or "*", "Parameters": " ".join(each.parameters or ())}
            for each in flavor.nvconfig or ()
        ],
        "Sysctl": [*flavor.sysctl_parameters],
        "ConfigFiles": [
            {
                "Path": each.path or "",
                "IsAppend": each.operation == "append",
                "Content": each.raw or "",
                "Permissions": each.permissions or "",
            }
            for each in flavor.config_files or ()
            if each.is_written_at_install
        ],
        "OVSRawScript": flavor.switch_script,
        "KernelParameters": flavor.kernel_parameters,
        "ContainerdRegistryEndpoint": flavor.registry_endpoint,
        "SFNum": flavor.scalable_functions,
        "TrustedSFs": inputs.trusted_functions,
        "AdditionalReboot": inputs.has_additional_reboot,
        "OOBNetwork": inputs.is_out_of_band,
        "RedfishInterface": inputs.is_out_of_band,
        "ControlPlaneMTU": inputs.control_plane_mtu,
        "PFs": ports,
        "DpuMode": flavor.dpu_mode or "",
    }


def _delimiter(text: str) -> str:
    """The end of a here-document with this text: the first name that is no line of it."""
    lines = set(text.split("\n"))
    return next(name for number in count() if (name := f"END_OF_USER_DATA_{number}") not in lines)

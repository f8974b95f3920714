"""The cloud-init user-data of a DPU: its files, and the commands of its first start.

User-data is built as data and written by a YAML library, so that no content of a flavor can end a quotation or change
the structure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from projections.resources.configuration.engine import expanded
from projections.resources.configuration.flavor import FlavorSpec, SystemdService
from projections.resources.configuration.inputs import Inputs
from projections.resources.configuration.scripts import KUBELET_UNIT

File = dict[str, Any]

_SFS, _JOIN, _FIRMWARE = "/opt/dpf/configure-sfs.sh", "/opt/dpf/join_k8s_cluster.sh", "/opt/dpf/set-nvconfig-params.sh"
_MODE, _SWITCH, _REGISTRY = "/opt/dpf/set-dpu-mode.sh", "/opt/dpf/ovs.sh", "/opt/dpf/config_containerd.sh"
_ADDRESS = "/opt/dpf/netplan-ip-check.sh"
_MAX_MTU = 9216


def user_data(inputs: Inputs, password: str) -> str:
    """The user-data of a DPU, whose flavor has no faults. `password` is the hash of a password, or a mask."""
    flavor = inputs.flavor
    found: dict[str, Any] = {
        "users": [_user(password)],
        "write_files": [*_files(inputs), *_files_of_flavor(flavor)],
        "runcmd": [*_commands(inputs)],
    }
    if not password:
        found["chpasswd"] = {"list": "ubuntu:ubuntu\n", "expire": True}
    if flavor.packages:
        exact = ((each, each.version) for each in flavor.packages)
        found["packages"] = [
            [each.name, version.value] if version and version.match_policy == "Exact" else each.name
            for each, version in exact
        ]
    return "#cloud-config\n" + yaml.dump(
        found, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1 << 30
    )


def _user(password: str) -> dict[str, Any]:
    user = {
        "name": "ubuntu",
        "lock_passwd": False,
        "groups": "adm, audio, cdrom, dialout, dip, floppy, lxd, netdev, plugdev, sudo, video",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "shell": "/bin/bash",
    }
    return user | {"passwd": password} if password else user


def _file(path: str, content: str, permissions: str = "0644", *, appends: bool = False) -> File:
    found: File = {"path": path, "permissions": permissions}
    if appends:
        found["append"] = True
    return found | {"content": content}


def _files(inputs: Inputs) -> Iterator[File]:
    """The files that every DPU has."""
    interface = management_interface(inputs)
    yield _file("/etc/netplan/60-mlnx.yaml", "", "0600")
    yield from _networks(inputs)
    yield _file("/etc/modules-load.d/br_netfilter.conf", "br_netfilter\n")
    forwarding = ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
    yield _file("/etc/sysctl.conf", "".join(f"{name}=1\n" for name in forwarding), appends=True)
    yield _file("/etc/systemd/resolved.conf.d/01-dpf.conf", "[Resolve]\nDNSStubListener=no\n")
    yield _file("/etc/NetworkManager/conf.d/90-dpf.conf", "[main]\ndns=none\n")
    functions = expanded(
        "functions", functions=inputs.flavor.scalable_functions, trusted_functions=inputs.trusted_functions
    )
    yield _file(_SFS, functions, "0755")
    yield _unit("bootstrap-dpf", "Creates the scalable functions", f"{_SFS} setup", before_kubelet=True)
    yield _file(_ADDRESS, expanded("renew-address", interface=interface), "0755")
    yield _unit("netplan-apply", "Applies the network until there is an address", _ADDRESS, type="simple")
    if inputs.join is not None:
        join = expanded("join", join=inputs.join, hostname=inputs.hostname, interface=interface)
        yield _file("/etc/systemd/system/kubelet.service.d/10-bf.conf", KUBELET_UNIT)
        yield _file(_JOIN, join, "0700")
        yield _unit("kubeadm-join", "Joins the DPU cluster", _JOIN, type="simple", before_kubelet=False)


def _files_of_flavor(flavor: FlavorSpec) -> Iterator[File]:
    if flavor.dpu_mode in ("dpu", "zero-trust"):
        yield _file(_MODE, expanded("mode", mode=flavor.dpu_mode), "0755")
    if flavor.nvconfig:
        yield _file(_FIRMWARE, expanded("firmware", nvconfig=flavor.nvconfig), "0755")
    if flavor.sysctl_parameters:
        yield _file("/etc/sysctl.d/99-dpf.conf", "".join(f"{each}\n" for each in flavor.sysctl_parameters))
    if flavor.kernel_parameters:
        kernel = expanded("kernel", kernel_parameters=flavor.kernel_parameters)
        yield _file("/etc/default/grub.d/99-dpf.cfg", kernel)
    if flavor.registry_endpoint:
        registry = expanded("registry", endpoint=flavor.registry_endpoint)
        yield _file("/etc/containerd/certs.d/nvcr.io/hosts.toml", registry)
        yield _file(_REGISTRY, expanded("set-registry"), "0755")
    if flavor.switch_script:
        yield _file(_SWITCH, f"#!/bin/bash\nset -e\n{flavor.switch_script}\n", "0755")
        yield _unit("ovs-config", "Configures the virtual switch", _SWITCH, before_kubelet=True)
    for file in flavor.config_files or ():
        if file.is_written_at_install:
            appends = file.operation == "append"
            yield _file(file.path or "", file.raw or "", file.permissions or "0644", appends=appends)


def _networks(inputs: Inputs) -> Iterator[File]:
    mtu, tmfifo = inputs.control_plane_mtu, {"tmfifo_net0": {"addresses": ["192.168.100.2/30"], "dhcp4": False}}
    if inputs.is_out_of_band:
        yield _network("98-oob-tmfifo", {"ethernets": {"oob_net0": {"dhcp4": True, "mtu": mtu}, **tmfifo}})
    else:
        bridge = {"dhcp4": True, "mtu": mtu, "interfaces": ["pf0vf0"]}
        yield _network("99-dpf-comm-ch", {"ethernets": {"pf0vf0": {"mtu": mtu}}, "bridges": {"br-comm-ch": bridge}})
        yield _network("98-oob-tmfifo", {"ethernets": {"oob_net0": {"dhcp4": False}, **tmfifo}})
    ports = [name for number in range(inputs.physical_functions) for name in (f"p{number}", f"pf{number}hpf")]
    yield _network("97-pf-mtu", {"ethernets": {name: {"mtu": _MAX_MTU} for name in ports}})


def _network(name: str, content: dict[str, Any]) -> File:
    network = {"network": {"renderer": "networkd", "version": 2, **content}}
    return _file(f"/etc/netplan/{name}.yaml", yaml.dump(network, Dumper=yaml.CSafeDumper, sort_keys=False), "0600")


def _unit(name: str, description: str, command: str, *, type: str = "oneshot", before_kubelet: bool = True) -> File:
    content = expanded("unit", description=description, command=command, type=type, before_kubelet=before_kubelet)
    return _file(f"/etc/systemd/system/{name}.service", content)


def _commands(inputs: Inputs) -> Iterator[list[str]]:
    flavor = inputs.flavor
    yield ["hostnamectl", "set-hostname", inputs.hostname]
    yield ["modprobe", "br_netfilter"]
    yield ["sysctl", "--system"]
    yield ["systemctl", "mask", "dnsmasq"]
    yield ["ln", "-sf", "/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"]
    yield ["systemctl", "restart", "systemd-resolved"]
    if flavor.nvconfig:
        yield [_FIRMWARE]
    if flavor.dpu_mode in ("dpu", "zero-trust"):
        yield [_MODE]
    if flavor.registry_endpoint:
        yield [_REGISTRY]
        yield ["systemctl", "restart", "containerd"]
    yield ["systemctl", "daemon-reload"]
    yield ["netplan", "apply"]
    units = ["netplan-apply", "bootstrap-dpf"]
    units += ["ovs-config"] if flavor.switch_script else []
    units += ["kubeadm-join"] if inputs.join is not None else []
    for unit in units:
        yield ["systemctl", "enable", "--now", "--no-block", f"{unit}.service"]
    for service in flavor.systemd_services or ():
        yield from _commands_of(service)
    if flavor.kernel_parameters:
        yield ["update-grub"]
    if inputs.has_additional_reboot:
        yield ["shutdown", "-r", "+1"]


def _commands_of(service: SystemdService) -> Iterator[list[str]]:
    for verb, operations in (("enable", ("Enable", "EnableAndStart")), ("start", ("Start", "EnableAndStart"))):
        if service.operation in operations:
            yield ["systemctl", verb, "--", service.name]


def management_interface(inputs: Inputs) -> str:
    """The interface by which the DPU reaches its cluster."""
    return "oob_net0" if inputs.is_out_of_band else "br-comm-ch"


class _Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as blocks, which people can read, where YAML can represent them so."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_BREAKS = frozenset("\r\x85\u2028\u2029")
"""Line breaks that YAML reads as a plain line feed or space, unless they are escaped."""


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if not _BREAKS.isdisjoint(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

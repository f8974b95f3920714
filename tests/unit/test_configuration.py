"""The configuration of a DPU: what a flavor becomes, and that no value of a flavor leaves its quotation."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources.configuration.flavor import FlavorSpec
from projections.resources.configuration.inputs import MASK, SIZE_MAX, Configuration, Inputs, Join
from projections.resources.configuration.render import rendered
from projections.resources.configuration.templates import FlavorTemplateSpec, rendered_flavor
from projections.resources.go_templates.render import Fault

HASH = "$1$salt$hash"
FLAVOR: dict[str, Any] = {
    "grub": {"kernelParameters": ["console=hvc0", "isolcpus=1-3"]},
    "sysctl": {"parameters": ["net.core.rmem_max=134217728"]},
    "nvconfig": [
        {"device": "p0", "parameters": ["PF_TOTAL_SF=20", "LINK_TYPE_P1=ETH"]},
        {"device": "P1", "parameters": ["NUM_OF_VFS=46"]},
    ],
    "ovs": {"rawConfigScript": "ovs-vsctl --if-exists del-br ovsbr1\novs-vsctl add-br br-sfc"},
    "bfcfgParameters": ["UPDATE_ATF_UEFI=yes", f"ubuntu_PASSWORD='{HASH}'", 'device="/dev/nvme0n1"'],
    "configFiles": [
        {"path": "/etc/mellanox/mlnx-bf.conf", "raw": "ALLOW_SHARED_RQ=no\nIPSEC=no\n", "permissions": "0600"},
        {"path": "/etc/hosts", "operation": "append", "raw": "10.0.0.1 registry\n"},
        {"path": "/later", "type": "agent-applied"},
    ],
    "containerdConfig": {"registryEndpoint": "https://registry:5000"},
    "packages": [{"name": "jq"}, {"name": "curl", "version": {"value": "8.1", "matchPolicy": "Exact"}}],
    "systemdServices": [{"name": "chrony", "operation": "EnableAndStart"}],
    "dpuMode": "zero-trust",
}
JOIN = Join("10.0.0.9:6443", "sha256:" + "0" * 64, "abcdef.0123456789abcdef")


def flavor(spec: dict[str, Any]) -> FlavorSpec:
    return msgspec.convert(spec, FlavorSpec)


def configuration(spec: dict[str, Any], *, masks: bool = False, **fields: Any) -> Configuration:
    found = rendered(Inputs("worker-1-mt25", flavor(spec), **fields), masks_password=masks)
    assert isinstance(found, Configuration), found
    return found


def files(found: Configuration) -> dict[str, dict[str, Any]]:
    return {each["path"]: each for each in yaml.safe_load(found.user_data)["write_files"]}


def test_each_field_of_a_flavor_is_written() -> None:
    found = configuration(FLAVOR, join=JOIN, physical_functions=2, trusted_functions=2)
    data, written = yaml.safe_load(found.user_data), files(found)
    assert found.bf_cfg.startswith("# Configuration of DPU worker-1-mt25.")
    assert "\nUPDATE_ATF_UEFI=yes\ndevice=/dev/nvme0n1\n\n" in found.bf_cfg
    assert data["users"][0]["passwd"] == HASH
    assert "chpasswd" not in data
    assert written["/etc/default/grub.d/99-dpf.cfg"]["content"] == "GRUB_CMDLINE_LINUX='console=hvc0 isolcpus=1-3'\n"
    assert written["/etc/sysctl.d/99-dpf.conf"]["content"] == "net.core.rmem_max=134217728\n"
    firmware = written["/opt/dpf/set-nvconfig-params.sh"]["content"]
    assert (
        '/dev/mst/*_pciconf[0-9]; do\n    mlxconfig -d "$device" -y set PF_TOTAL_SF=20 LINK_TYPE_P1=ETH\n' in firmware
    )
    assert '/dev/mst/*_pciconf[0-9].1; do\n    mlxconfig -d "$device" -y set NUM_OF_VFS=46\n' in firmware
    assert "seq 0 17" in written["/opt/dpf/configure-sfs.sh"]["content"]
    assert "seq 101 102" in written["/opt/dpf/configure-sfs.sh"]["content"]
    assert written["/opt/dpf/ovs.sh"]["content"] == f"#!/bin/bash\nset -e\n{FLAVOR['ovs']['rawConfigScript']}\n"
    assert written["/etc/mellanox/mlnx-bf.conf"] == {
        "path": "/etc/mellanox/mlnx-bf.conf", "permissions": "0600", "content": "ALLOW_SHARED_RQ=no\nIPSEC=no\n"
    }  # fmt: skip
    assert written["/etc/hosts"] == {
        "path": "/etc/hosts", "permissions": "0644", "append": True, "content": "10.0.0.1 registry\n"
    }  # fmt: skip
    assert "/later" not in written
    assert '[host."https://registry:5000"]' in written["/etc/containerd/certs.d/nvcr.io/hosts.toml"]["content"]
    assert "--disable_rshim" in written["/opt/dpf/set-dpu-mode.sh"]["content"]
    assert data["packages"] == ["jq", ["curl", "8.1"]]
    assert ["hostnamectl", "set-hostname", "worker-1-mt25"] in data["runcmd"]
    assert ["systemctl", "start", "--", "chrony"] in data["runcmd"]
    join = written["/opt/dpf/join_k8s_cluster.sh"]
    assert join["permissions"] == "0700"
    assert f"kubeadm join {JOIN.endpoint} --token {JOIN.token}" in join["content"]
    networks = yaml.safe_load(written["/etc/netplan/97-pf-mtu.yaml"]["content"])["network"]["ethernets"]
    assert [*networks] == ["p0", "pf0hpf", "p1", "pf1hpf"]


def test_an_empty_flavor_has_the_default_password_and_joins_no_cluster() -> None:
    found = configuration({})
    data, written = yaml.safe_load(found.user_data), files(found)
    assert data["chpasswd"] == {"list": "ubuntu:ubuntu\n", "expire": True}
    assert "passwd" not in data["users"][0]
    assert "/opt/dpf/join_k8s_cluster.sh" not in written
    assert not [each for each in data["runcmd"] if "kubeadm-join.service" in each]


def test_the_management_port_is_the_way_to_the_cluster_without_trust_in_the_host() -> None:
    inside = configuration({}, join=JOIN, control_plane_mtu=1400)
    outside = configuration({}, join=JOIN, control_plane_mtu=1400, is_out_of_band=True)
    assert "dev br-comm-ch" in files(inside)["/opt/dpf/join_k8s_cluster.sh"]["content"]
    assert "dev oob_net0" in files(outside)["/opt/dpf/join_k8s_cluster.sh"]["content"]
    network = yaml.safe_load(files(outside)["/etc/netplan/98-oob-tmfifo.yaml"]["content"])["network"]
    assert network["ethernets"]["oob_net0"] == {"dhcp4": True, "mtu": 1400}
    assert "/etc/netplan/99-dpf-comm-ch.yaml" not in files(outside)


def test_what_is_shown_has_no_secret() -> None:
    found = configuration(FLAVOR, masks=True, join=JOIN._replace(token=MASK))
    assert HASH not in found.bf_cfg
    assert JOIN.token not in found.bf_cfg
    assert yaml.safe_load(found.user_data)["users"][0]["passwd"] == MASK
    assert MASK in files(found)["/opt/dpf/join_k8s_cluster.sh"]["content"]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"bfcfgParameters": ["rm -rf /"]}, "bfcfgParameters[0]: 'rm -rf /' must be KEY=VALUE with one word as value"),
        ({"bfcfgParameters": ["A=b c"]}, "bfcfgParameters[0]: 'A' must be KEY=VALUE with one word as value"),
        ({"bfcfgParameters": ["A='b"]}, "bfcfgParameters[0]: 'A' must be KEY=VALUE with one word as value"),
        ({"sysctl": {"parameters": ["a=1\nb=2"]}}, r"sysctl.parameters[0]: 'a=1\nb=2' must be KEY=VALUE in one line"),
        ({"nvconfig": [{"device": "p7"}]}, "nvconfig[0].device: 'p7' must be *, p0 or p1"),
        (
            {"nvconfig": [{"parameters": ["A=1 -d /dev/x"]}]},
            "nvconfig[0].parameters[0]: 'A=1 -d /dev/x' must be KEY=VALUE without white space",
        ),
        ({"configFiles": [{"path": "x"}]}, "configFiles[0].path: 'x' must begin with / and be printable"),
        (
            {"configFiles": [{"path": "/x", "permissions": "u+s"}]},
            "configFiles[0].permissions: 'u+s' must be octal, such as 0644",
        ),
    ],
)
def test_a_flavor_that_cannot_be_written_safely_is_a_fault(spec: dict[str, Any], fault: str) -> None:
    found = rendered(Inputs("dpu", flavor(spec)))
    assert isinstance(found, Fault)
    assert found == fault


def test_a_configuration_above_the_limit_is_a_fault() -> None:
    found = rendered(Inputs("dpu", flavor({"configFiles": [{"path": "/x", "raw": "x" * SIZE_MAX}]})))
    assert isinstance(found, Fault)
    assert re.fullmatch(r"bf\.cfg has \d+ bytes, more than the 131072 that the installer reads", found)


def test_a_users_template_has_the_values_that_dpf_gives() -> None:
    template = "{{ range .BFGCFGParams }}{{ . }}\n{{ end }}{{ .KubeadmJoinCMD }}\n{{ .DPUHostName }} {{ .SFNum }}\n" + (
        "{{ if .Sysctl }}{{ range .Sysctl }}{{ indent 2 . }}{{ end }}{{ end }} {{ .UbuntuPassword }} {{ .PFs }}"
    )
    found = configuration(FLAVOR, join=JOIN, user_template=template)
    assert found.bf_cfg.splitlines() == [
        "UPDATE_ATF_UEFI=yes",
        "device=/dev/nvme0n1",
        f"kubeadm join {JOIN.endpoint} --token {JOIN.token} --discovery-token-ca-cert-hash {JOIN.ca_hash} --v=5",
        "worker-1-mt25 20",
        f"  net.core.rmem_max=134217728 {shlex.quote(HASH)} [p0 pf0hpf]",
    ]
    broken = rendered(Inputs("dpu", flavor({}), user_template="\n{{ .Nope }}"))
    assert broken == "template for bf.cfg: line 2: .Nope has no value"


_BREAKING = (
    "'; touch /tmp/owned; '|$(touch owned)|`touch owned`|\\|'\\''|END_OF_USER_DATA_0|a\nEND\nb|\n  - path: /etc/passwd"
    "|{{ 7*7 }}|{% raw %}|\0|\r\n|\x85|\u2028|'\"|%|${IFS}|!|: #|- &a|*a|\t| lead|trail |\n\n|\ufeff"
    "|END_OF_USER_DATA_0\nrm -rf /\n"
)
"""Texts that would end a quotation, a document or a line."""
HOSTILE = st.one_of(
    st.text(max_size=60),
    st.sampled_from(_BREAKING.split("|")),
    st.lists(st.sampled_from(list("'\"\\$`\n;&|<>(){}#! \tEND")), max_size=30).map("".join),
)
LINE = HOSTILE.filter(lambda text: text.isprintable())


@st.composite
def hostile_flavors(draw: st.DrawFn) -> dict[str, Any]:
    words = draw(st.lists(LINE, max_size=3))
    return {
        "grub": {"kernelParameters": draw(st.lists(LINE, max_size=3))},
        "sysctl": {"parameters": [f"a={each}" for each in draw(st.lists(LINE, max_size=2))]},
        "nvconfig": [{"parameters": [f"A={''.join(each.split())}" for each in words] or ["A=1"]}],
        "ovs": {"rawConfigScript": draw(HOSTILE)},
        "bfcfgParameters": [f"P{at}={shlex.quote(each)}" for at, each in enumerate(draw(st.lists(LINE, max_size=3)))]
        + [f"ubuntu_PASSWORD={shlex.quote(draw(LINE))}"],
        "configFiles": [{"path": "/etc/x", "raw": draw(HOSTILE)}, {"path": "/" + draw(LINE), "raw": draw(HOSTILE)}],
        "containerdConfig": {"registryEndpoint": draw(LINE)},
    }


@settings(max_examples=60)
@given(hostile_flavors(), st.text(max_size=20).filter(lambda text: "\0" not in text))
def test_no_value_changes_the_structure_of_user_data(spec: dict[str, Any], token: str) -> None:
    found = rendered(Inputs("dpu", flavor(spec), join=JOIN._replace(token=token)))
    if isinstance(found, Fault):
        assert found.startswith(("a text of the flavor is not Unicode", "bfcfgParameters")), found
        return
    plain = configuration({**FLAVOR, "configFiles": [], "packages": None, "systemdServices": None, "dpuMode": None})
    data = yaml.safe_load(found.user_data)
    assert data.keys() <= yaml.safe_load(plain.user_data).keys() | {"chpasswd"}
    written = {each["path"]: each["content"] for each in data["write_files"]}
    for file in spec["configFiles"]:
        if file["path"] != "/etc/x" or spec["configFiles"][1]["path"] != "/etc/x":
            assert written[file["path"]] == file["raw"]
    assert (
        written["/etc/sysctl.d/99-dpf.conf"].splitlines() == spec["sysctl"]["parameters"]
        if (spec["sysctl"]["parameters"])
        else True
    )
    endpoint = spec["containerdConfig"]["registryEndpoint"]
    if endpoint:
        hosts = written["/etc/containerd/certs.d/nvcr.io/hosts.toml"]
        assert json.loads(hosts.split("[host.")[1].rpartition("]\n  cap")[0]) == endpoint


@settings(max_examples=25, deadline=None)
@given(spec=hostile_flavors())
def test_bash_reads_each_value_as_it_is(tmp_path_factory: pytest.TempPathFactory, spec: dict[str, Any]) -> None:
    found = rendered(Inputs("dpu", flavor(spec), join=JOIN))
    if isinstance(found, Fault):
        return
    root = tmp_path_factory.mktemp("root")
    config = root / "bf.cfg"
    config.write_bytes(found.bf_cfg.replace("/mnt/", f"{root}/mnt/").encode())
    names = [each.partition("=")[0] for each in spec["bfcfgParameters"][:-1]]
    shown = "".join(f'printf "%s\\0" "${{{name}}}"; ' for name in names)
    script = f"set -e; . {config}; {shown} bfb_modify_os"
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=root,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    values = [shlex.split(each.partition("=")[2])[:1] or [""] for each in spec["bfcfgParameters"][:-1]]
    assert done.stdout == "".join(f"{each[0]}\0" for each in values).encode()
    user_data = root / "mnt/var/lib/cloud/seed/nocloud-net/user-data"
    assert user_data.read_bytes() == found.user_data.replace("/mnt/", f"{root}/mnt/").encode()
    assert {path.name for path in root.iterdir()} == {"bf.cfg", "mnt"}
    scripts = (each for each in yaml.safe_load(found.user_data)["write_files"] if each["path"].startswith("/opt/dpf/"))
    for each in scripts:
        if each["path"] != "/opt/dpf/ovs.sh":  # the user's own script
            _check_syntax(root / "script", each["content"])


def _check_syntax(path: Path, content: str) -> None:
    path.write_text(content)
    done = subprocess.run(["/bin/bash", "-n", path], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, b""), content
    path.unlink()


def test_a_flavor_template_is_rendered_with_the_values_of_a_device() -> None:
    spec = FlavorTemplateSpec(
        template="spec:\n  dpuResources: {cpu: 1}\n"
        "  bfcfgParameters:\n  - MTU={{ .mtu }}\n  - RACK={{ .rack | quote }}\n",
        dpu_resources={"cpu": 16},
    )
    found = rendered_flavor(spec, {"mtu": 9000, "rack": "A12"})
    assert found == {"dpuResources": {"cpu": 16}, "bfcfgParameters": ["MTU=9000", 'RACK="A12"']}
    assert rendered_flavor(spec, {"mtu": 1}) == "template: line 5: .rack has no value"


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("spec: [", "template: the result is not YAML, line 1"),
        ("a: &a [1]\nspec: {b: *a}", "template: the result has YAML aliases, which are not allowed"),
        ("- 1", "template: the result must be an object"),
        ("spec: 1", "template: the result must have an object as spec"),
        ("spec: " + "[" * 200 + "]" * 200, "template: the result is too large"),
        ("spec: {a: " + "9" * 100 + "}", "template: a number has more than 64 digits"),
        ("spec: {a: 2024-01-01T00:00:00Z, ? [x] : 1}", "template: the result is not YAML, line 1"),
        ("spec: {a: !!python/object:os.system {}}", "template: the result is not YAML, line 1"),
    ],
)
def test_a_flavor_template_with_a_bad_result_is_a_fault(template: str, fault: str) -> None:
    assert rendered_flavor(FlavorTemplateSpec(template=template), {}) == fault

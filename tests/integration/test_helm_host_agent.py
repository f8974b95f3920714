"""The DaemonSet of host agents in the Helm chart: off by default, and with no more rights than its tasks need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from deploy.cli.processes.host_agent import host_agent
from deploy.kubernetes.chart_values import CHART
from tests.support.kubernetes.chart import (
    FOUND,
    LAB,
    MANAGED,
    NAMESPACE,
    RELEASE,
    SECRETS,
    VALUE_SETS,
    Object,
    Values,
    helm,
    of_kind,
    render,
)

pytestmark = pytest.mark.usefixtures("kubernetes_programs")

ALL: Values = {
    "enabled": True,
    "server": "plane.example.org:7080",
    "namespace": "dpf",
    "certificates": "/etc/host-agent",
    "privileged": True,
    "rebootCommands": {"SystemReboot": "nsenter --target=1 --mount systemctl reboot"},
    "options": ["--vfs=8", "--device-id=a2dc"],
    "features": True,
}


def daemon_set(chosen: Values, folder: Path) -> Object:
    (found,) = of_kind(render(chosen, folder), "DaemonSet")
    return found


def variables(container: Object) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container["env"]}


def test_there_is_none_unless_hosts_are_trusted(tmp_path: Path) -> None:
    for chosen in VALUE_SETS.values():
        assert of_kind(render(chosen, tmp_path), "DaemonSet") == []


@pytest.mark.parametrize("chosen", [LAB, MANAGED, SECRETS], ids=["lab", "cert-manager", "secrets"])
def test_an_agent_has_the_network_of_its_host_and_one_capability(chosen: Values, tmp_path: Path) -> None:
    pod = daemon_set({**chosen, "hostAgent": {"enabled": True}}, tmp_path)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostNetwork"] is True
    assert not {"hostPID", "hostIPC"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    }
    paths = {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    certificates = set() if chosen is LAB else {"/etc/dpuplane/host-agent"}
    assert paths == {"/sys", "/dev"} | certificates
    assert variables(container)["DPUPLANE_SERVER"] == f"{RELEASE}.{NAMESPACE}.svc:7080"
    read_only = {each["name"] for each in container["volumeMounts"] if each.get("readOnly")}
    assert read_only == ({"tls"} if certificates else set())


@pytest.mark.parametrize("more", [{"enabled": True}, ALL], ids=["least", "all"])
def test_the_command_accepts_what_it_gets(more: Values, tmp_path: Path) -> None:
    template = daemon_set({**MANAGED, "hostAgent": more}, tmp_path)["spec"]["template"]
    (container,) = template["spec"]["containers"]
    name, *words = container["args"]
    assert name == host_agent.name
    paths = {each["mountPath"] for each in container["volumeMounts"]}
    assert {word.partition("=")[2] for word in words if "-root=" in word} <= paths
    for root in ("sys", "dev"):
        (tmp_path / root).mkdir()
    words = [word.replace("/host/sys", f"{tmp_path}/sys").replace("/host/dev", f"{tmp_path}/dev") for word in words]
    known = {option.envvar for option in host_agent.params if isinstance(option, click.Option)}
    given = variables(container)
    assert given.keys() - known == {"DPUPLANE_LOG_FORMAT"}
    context = host_agent.make_context(name, ["--node=host-1", *words])
    assert context.params["namespace"] == ("dpf" if more is ALL else "dpf-operator-system")
    if more is ALL:
        assert context.params["reboot_commands"]["SystemReboot"][:2] == ["nsenter", "--target=1"]
        assert context.params["vfs"] == 8
        assert str(context.params["features"].parent) in paths
        assert container["securityContext"]["privileged"] is True
        assert given["DPUPLANE_SERVER"] == "plane.example.org:7080"


def test_values_of_all_pods_count_for_agents_too(tmp_path: Path) -> None:
    workload = daemon_set({**SECRETS, **FOUND, "hostAgent": {"enabled": True}}, tmp_path)
    template = workload["spec"]["template"]
    assert workload["metadata"]["name"] == "fleet-host-agent"
    assert template["metadata"]["labels"]["team"] == "network"
    assert template["metadata"]["annotations"] == {"example.org/owner": "ann"}
    assert template["spec"]["priorityClassName"] == "system-cluster-critical"
    assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert template["spec"]["nodeSelector"] == {"feature.node.kubernetes.io/dpu-enabled": "true"}
    wanted, labels = workload["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]
    assert wanted.items() <= labels.items()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"rebootCommands": {"Reboot": "x"}}, "invalid propertyName 'Reboot'"),
        ({"options": ["vfs=8"]}, "'vfs=8' does not match pattern"),
        ({"certificates": "certs"}, "'certs' does not match pattern"),
        ({"server": "plane"}, "'plane' does not match pattern"),
    ],
)
def test_wrong_values_are_refused_by_name(chosen: Values, message: str, tmp_path: Path) -> None:
    done = helm("template", RELEASE, str(CHART), values={**LAB, "hostAgent": chosen}, folder=tmp_path)
    assert done.returncode
    assert message in done.stderr


def test_helm_finds_no_fault(tmp_path: Path) -> None:
    done = helm("lint", str(CHART), "--strict", values={**MANAGED, "hostAgent": ALL}, folder=tmp_path)
    assert not done.returncode, done.stdout + done.stderr

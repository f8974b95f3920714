"""The systemd units: systemd accepts them, and its security analysis finds little."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from deploy.cli.processes.host_agent import host_agent
from deploy.process.life import SHUTDOWN_SECONDS as END_S
from tests.support.planes import DPUPLANE
from tests.support.requirements import missing_requirement
from tests.support.wheelhouse import ROOT

EXPOSURE_MAX = 20
"""Limit of systemd's exposure level, in tenths (of 100). The rest is network access, which the plane needs."""
HOST_EXPOSURE_MAX = 25
"""The limit of the agent of a host, which is root with two capabilities, and sees sysfs and some devices."""
UNITS = {"dpuplane.service": "dpuplane.service", "dpuplane@.service": "dpuplane@api.service"}
HOST_UNIT = "dpuplane-host-agent.service"


@pytest.mark.parametrize("unit", [*UNITS, HOST_UNIT])
def test_a_systemd_unit_is_valid_and_hardened(unit: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        missing_requirement("systemd-analyze not found: apt-get install systemd")
    text = (ROOT / "deploy" / "systemd" / unit).read_text().replace("/opt/dpuplane/bin/dpuplane", DPUPLANE)
    file, most = tmp_path / UNITS.get(unit, unit), HOST_EXPOSURE_MAX if unit == HOST_UNIT else EXPOSURE_MAX
    file.write_text(text)
    for arguments in (("verify", "--man=no"), ("security", "--offline=true", f"--threshold={most}")):
        ran = subprocess.run([analyze, *arguments, file], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_waits_for_readiness_has_a_watchdog_and_needs_no_password_file(unit: str) -> None:
    settings = settings_of(unit)
    assert (settings["Type"], settings["NotifyAccess"]) == ("notify", "main")
    assert int(settings["WatchdogSec"]) > 2 * END_S, "the watchdog interval must exceed a clean shutdown"
    assert int(settings["TimeoutStopSec"]) > END_S
    absolute = [value for name, value in settings.items() if name.startswith("LoadCredential") and ":/" in value]
    assert absolute == [], "systemd does not start a unit whose credential path does not exist"


def settings_of(unit: str) -> dict[str, str]:
    """The settings of a unit by name, the last of each."""
    lines = (ROOT / "deploy" / "systemd" / unit).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_agent_of_a_host_is_restarted_for_ever_and_may_do_its_tasks() -> None:
    settings = settings_of(HOST_UNIT)
    assert settings["Restart"] == "always"
    assert int(settings["TimeoutStopSec"]) > END_S
    assert settings["CapabilityBoundingSet"].split() == ["CAP_NET_ADMIN", "CAP_SYS_BOOT"]
    assert settings["ProtectKernelTunables"] == "no", "VFs are made by a write to sysfs"
    assert "AF_NETLINK" in settings["RestrictAddressFamilies"].split()
    variables = {option.envvar for option in host_agent.params if isinstance(option, click.Option)}
    lines = (ROOT / "deploy" / "systemd" / HOST_UNIT).read_text().splitlines()
    words = [word for line in lines if line.startswith("Environment=") for word in line.split("=", 1)[1].split()]
    given = {word.partition("=")[0] for word in words}
    assert given - {"OPTIONS"} <= variables, "the command reads each variable"

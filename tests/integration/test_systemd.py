"""The systemd units: systemd accepts them, and its security analysis finds little."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.process.life import SHUTDOWN_SECONDS as END_S
from tests.support.planes import DPUPLANE
from tests.support.requirements import missing_requirement
from tests.support.wheelhouse import ROOT

EXPOSURE_MAX = 20
"""Limit of systemd's exposure level, in tenths (of 100). The rest is network access, which the plane needs."""
UNITS = {"dpuplane.service": "dpuplane.service", "dpuplane@.service": "dpuplane@api.service"}


@pytest.mark.parametrize("unit", UNITS)
def test_a_systemd_unit_is_valid_and_hardened(unit: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        missing_requirement("systemd-analyze not found: apt-get install systemd")
    text = (ROOT / "deploy" / "systemd" / unit).read_text().replace("/opt/dpuplane/bin/dpuplane", DPUPLANE)
    file = tmp_path / UNITS[unit]
    file.write_text(text)
    for arguments in (("verify", "--man=no"), ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}")):
        ran = subprocess.run([analyze, *arguments, file], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_waits_for_readiness_has_a_watchdog_and_needs_no_password_file(unit: str) -> None:
    lines = (ROOT / "deploy" / "systemd" / unit).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert (settings["Type"], settings["NotifyAccess"]) == ("notify", "main")
    assert int(settings["WatchdogSec"]) > 2 * END_S, "the watchdog interval must exceed a clean shutdown"
    assert int(settings["TimeoutStopSec"]) > END_S
    absolute = [value for name, value in settings.items() if name.startswith("LoadCredential") and ":/" in value]
    assert absolute == [], "systemd does not start a unit whose credential path does not exist"

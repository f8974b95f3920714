"""The platform demo in a script: DPF manifests from discovery to Ready, a held update, roll back, and deletion."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from drivers.simulators.bmc_network import NetworkSizes, parse_sizes
from tests.support.planes import run

HOSTS_WITH_DPUS, DPUS = 10, 12
OF_DEPLOYMENT = 6


@pytest.mark.slow  # the devices and the waves of the demo take half a minute
async def test_a_small_fleet_goes_through_every_step(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    ran = await run("demo", "--platform", "3x5", "--json", "--data", str(data))
    assert ran.status == 0, ran.stderr
    found = ran.json()
    assert [found[name] for name in ("hosts", "hosts_with_dpus", "dpus", "found_dpus")] == [
        15,
        HOSTS_WITH_DPUS,
        DPUS,
        DPUS,
    ]
    released = [wave["dpus"] for wave in found["waves"]]
    assert released == [1, 1], "the second wave has the DPU that fails"
    assert found["failed_dpu"].startswith("rack-2-host-02-") and "does not exist on the device" in found["failure"]
    assert found["failed_dpu"] in found["held"] and "the failure budget is 0" in found["held"]
    assert found["of_deployment"] == found["chained"] == OF_DEPLOYMENT
    assert found["untouched"] == OF_DEPLOYMENT - sum(released)
    installs = DPUS + 2 * sum(released) - 1  # the DPU that failed has no second installation to undo
    assert installs - 1 <= found["installs"] <= installs
    assert HOSTS_WITH_DPUS <= found["drains"] < found["installs"], "a host with two DPUs is drained once for both"
    assert (found["remaining"], found["digests_match"]) == (0, True)
    assert {each["phase"] for each in found["durations"]} >= {"OS Installing"}
    manifests = sorted((data / "manifests").glob("*.yaml"))
    kinds = {each["kind"] for path in manifests for each in yaml.safe_load_all(path.read_text())}
    assert {"DPUDiscovery", "DPUNode", "BFB", "DPUSet", "DPUDeployment", "DPUServiceTemplate"} <= kinds
    replayed = await run("replay", "--data", str(data), "--output", "json")
    assert replayed.json()["records"] >= found["log_records"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--platform", "4"), "RACKSxHOSTS"),
        (("--platform", "4x0"), "RACKSxHOSTS"),
        (("--platform", "3x5", "--kafka", "h:1"), "--kafka must not be given with --platform"),
        (("--platform", "3x5", "--nodes", "7"), "--nodes must not be given with --platform"),
    ],
)
async def test_invalid_sizes_are_refused(arguments: tuple[str, ...], says: str) -> None:
    ran = await run("demo", *arguments)
    assert ran.status == 2
    assert says in ran.stderr


def test_sizes_have_one_rack_without_dpus_unless_there_is_only_one() -> None:
    assert parse_sizes("f", "") == parse_sizes("f", "4x25") == NetworkSizes(4, 25, 1)
    assert parse_sizes("f", "1x3") == NetworkSizes(1, 3, 0)
    for wrong in ("4", "x", "4x", "0x3", "4x100", "1e1x3", "4x5x6"):
        with pytest.raises(ValueError, match="must have the form RACKSxHOSTS"):
            parse_sizes("f", wrong)

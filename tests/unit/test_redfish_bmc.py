"""The simulated BMC without sockets, on a clock of the test: its refusals, changes that wait, and installations."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.simulators.redfish.accounts import FACTORY_PASSWORD, LOCKOUT_FAILURES, SESSIONS_MAX
from drivers.simulators.redfish.bmc import ROUTES, RedfishBmc
from drivers.simulators.redfish.card import OS, Durations, Image
from drivers.simulators.redfish.faults import Outcome, Shares
from drivers.simulators.redfish.identity import BLUEFIELD_3, BLUEFIELD_4, Generation, Identity
from drivers.simulators.redfish.messages import Answer, Request
from drivers.simulators.redfish.update_resources import ACTIVATE, SIMPLE_UPDATE
from tests.support.bmc_client import PASSWORD

SYSTEM = "/redfish/v1/Systems/Bluefield"
MANAGER = "/redfish/v1/Managers/Bluefield_BMC"
NEW = Image("DOCA_3.0.0_BSP_4.11.0", {"DPU_BSP": "4.11.0"})
DURATIONS = Durations(flash_s=600.0, boot_s=180.0, bmc_restart_s=60.0)


_NAMES = st.sampled_from(
    [
        "Actions",
        "AlternativeNames",
        "Attributes",
        "Boot",
        "BootSourceOverrideEnabled",
        "BootSourceOverrideTarget",
        "BootTimeout",
        "CertificateCollection",
        "CertificateString",
        "CertificateType",
        "CertificateUri",
        "City",
        "CommonName",
        "Country",
        "HostRshim",
        "Image",
        "ImageURI",
        "InternalCPUModel",
        "Mode",
        "Oem",
        "Organization",
        "OrganizationalUnit",
        "Password",
        "PrivilegeMode",
        "ResetType",
        "SecureBootEnable",
        "State",
        "Targets",
        "TransferProtocol",
        "UserName",
        "@odata.id",
        "BmcRShim",
        "BmcRShimEnabled",
    ]
)
"""Names of properties and parameters that the service knows."""


class Bench:
    """A BMC, its clock, and requests of its user."""

    def __init__(self, generation: Generation = BLUEFIELD_3, password: str = PASSWORD, **options: Any) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        identity = Identity("SN-1", generation=generation)
        self.bmc = RedfishBmc(identity, now=lambda: self.time, rng=Random(1), durations=DURATIONS, **options)
        self.user = generation.user
        self.password = password or FACTORY_PASSWORD
        if password:
            self.bmc.accounts.set_password(self.bmc.accounts.users[self.user], password)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A request with the password of the user, unless headers say otherwise."""
        basic = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        named = {"authorization": f"Basic {basic}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.bmc.handle(Request(method, path, named, data))

    def get(self, path: str) -> Any:
        answer = self.send("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.body

    def begin(self, outcome: Outcome | None = None) -> str:
        """Begin an installation whose image has arrived. Returns the path of its task."""
        if outcome is not None:
            self.bmc.card.outcomes.planned.append(outcome)
        answer = self.send("POST", SIMPLE_UPDATE, {"ImageURI": "http://images/a.bfb"})
        assert answer.status == 202
        assert isinstance(answer.body, dict)
        self.bmc.card.fetched(self.bmc.card.fetches[-1].number, NEW)
        return str(answer.body["@odata.id"])

    def passes(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def error_of(answer: Answer) -> str:
    assert isinstance(answer.body, dict)
    return str(answer.body["error"]["@Message.ExtendedInfo"][0]["MessageId"]).rpartition(".")[2]


def test_a_password_of_the_factory_only_allows_its_change() -> None:
    bench = Bench(password="")
    account = "/redfish/v1/AccountService/Accounts/root"
    for path in ("/redfish/v1/Systems", SYSTEM, "/redfish/v1/AccountService"):
        refused = bench.send("GET", path)
        assert (refused.status, error_of(refused)) == (403, "PasswordChangeRequired")
    assert bench.get(account)["PasswordChangeRequired"] is True
    for bad in ("short", FACTORY_PASSWORD, 7):
        assert bench.send("PATCH", account, {"Password": bad}).status == 400
    assert bench.send("PATCH", account, {"Password": PASSWORD}).status == 200
    assert bench.send("GET", SYSTEM).status == 401
    bench.password = PASSWORD
    assert bench.get(account)["PasswordChangeRequired"] is False


def test_many_wrong_passwords_lock_the_account_for_a_while() -> None:
    bench = Bench()
    bench.password = "wrong"
    assert {bench.send("GET", SYSTEM).status for _ in range(LOCKOUT_FAILURES)} == {401}
    bench.password = PASSWORD
    assert bench.send("GET", SYSTEM).status == 401
    bench.passes(601)
    assert bench.send("GET", SYSTEM).status == 200


def test_an_account_is_not_locked_without_a_threshold() -> None:
    bench = Bench()
    assert bench.send("PATCH", "/redfish/v1/AccountService", {"AccountLockoutThreshold": 0}).status == 200
    bench.password = "wrong"
    assert {bench.send("GET", SYSTEM).status for _ in range(3 * LOCKOUT_FAILURES)} == {401}
    bench.password = PASSWORD
    assert bench.send("GET", SYSTEM).status == 200


def test_an_unused_session_ends() -> None:
    bench = Bench()
    opened = bench.send("POST", "/redfish/v1/SessionService/Sessions", {"UserName": "root", "Password": PASSWORD})
    token = opened.headers["X-Auth-Token"]
    bench.passes(1_700)
    assert bench.send("GET", SYSTEM, x_auth_token=token).status == 200
    bench.passes(1_700)
    assert bench.send("GET", SYSTEM, x_auth_token=token).status == 200
    bench.passes(1_900)
    assert bench.send("GET", SYSTEM, x_auth_token=token).status == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", "/redfish/v1/Nothing", None, 404, "ResourceMissingAtURI"),
        ("GET", "/redfish/v1/Systems/Other", None, 404, "ResourceMissingAtURI"),
        ("GET", "/redfish/v1/TaskService/Tasks/9", None, 404, "ResourceMissingAtURI"),
        ("DELETE", SYSTEM, None, 405, "OperationNotAllowed"),
        ("PATCH", SYSTEM, b"{", 400, "MalformedJSON"),
        ("PATCH", SYSTEM, b"[]", 400, "UnrecognizedRequestBody"),
        ("PATCH", SYSTEM, {"PowerState": "On"}, 400, "PropertyUnknown"),
        ("PATCH", SYSTEM, {"Boot": {"BootSourceOverrideTarget": "Tape"}}, 400, "PropertyValueIncorrect"),
        ("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset", {}, 400, "ActionParameterMissing"),
        ("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "Kick"}, 400, "ActionParameterValueError"),
        ("POST", SIMPLE_UPDATE, {"ImageURI": "http://h/i", "Force": True}, 400, "ActionParameterUnknown"),
        ("POST", SIMPLE_UPDATE, {"ImageURI": "ftp://h/i"}, 400, "ActionParameterValueFormatError"),
        ("POST", SIMPLE_UPDATE, {"ImageURI": "h/i"}, 400, "ActionParameterMissing"),
        ("POST", SIMPLE_UPDATE, {"ImageURI": "http://h/i", "Targets": ["/x/Y"]}, 400, "ActionParameterValueNotInList"),
    ],
)
def test_a_wrong_request_is_refused_with_a_message(method: str, path: str, body: Any, status: int, error: str) -> None:
    refused = Bench().send(method, path, body)
    assert (refused.status, error_of(refused)) == (status, error)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["Once", "http://h/i", "DpuMode"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=8,
)


CSR = {
    **dict.fromkeys(("CommonName", "Organization", "OrganizationalUnit", "City", "State"), "dpu"),
    "Country": "DE",
    "CertificateCollection": {"@odata.id": f"{MANAGER}/NetworkProtocol/HTTPS/Certificates"},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"Country": "DEU"},
        {"CommonName": "x" * 70},
        {"CommonName": "\ud800"},
        {"AlternativeNames": ["ö.de"]},
        {"CertificateCollection": {"@odata.id": "/redfish/v1/Other"}},
    ],
)
def test_a_wrong_certificate_request_is_refused(wrong: dict[str, Any]) -> None:
    bench = Bench()
    path = "/redfish/v1/CertificateService/Actions/CertificateService.GenerateCSR"
    assert bench.send("POST", path, CSR | wrong).status == 400
    assert bench.send("POST", path, CSR).status == 200


def test_credentials_that_are_no_text_are_refused() -> None:
    bench = Bench()
    path = "/redfish/v1/SessionService/Sessions"
    assert bench.send("POST", path, {"UserName": "root", "Password": "\ud800"}).status == 401
    assert bench.send("POST", path, {"UserName": "root", "Password": PASSWORD}).status == 201
    assert bench.send("GET", SYSTEM, x_auth_token="ö").status == 401


@settings(max_examples=100)
@given(
    st.sampled_from([BLUEFIELD_3, BLUEFIELD_4]),
    st.sampled_from([(route.path, method) for route in ROUTES for method in (*route.methods, "PUT")]),
    st.binary(max_size=20) | st.dictionaries(_NAMES, _JSON, max_size=8),
    st.dictionaries(st.sampled_from(["authorization", "x_auth_token", "if_match"]), st.text(max_size=8), max_size=1),
)
def test_any_request_gets_an_answer(
    generation: Generation, target: tuple[str, str], body: Any, headers: dict[str, str]
) -> None:
    bench = Bench(generation)
    own = {"Systems": generation.system, "Managers": generation.manager, "Chassis": generation.chassis}
    path = re.sub(r"(Systems|Managers|Chassis)/\{\}", lambda found: f"{found[1]}/{own[found[1]]}", target[0])
    answer = bench.send(target[1], path.replace("{}", "1"), body, **headers)
    assert answer.status in (200, 201, 202, 204, 400, 401, 404, 405, 412)
    json.dumps(answer.body)


def test_one_wrong_property_changes_none() -> None:
    bench = Bench()
    body = {"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Sometimes"}}
    before = bench.get(SYSTEM)
    assert bench.send("PATCH", SYSTEM, body).status == 400
    assert bench.get(SYSTEM) == before


def test_a_change_of_an_outdated_resource_is_refused() -> None:
    bench = Bench()
    path = f"{SYSTEM}/SecureBoot"
    tag = bench.send("GET", path).headers["ETag"]
    assert bench.send("PATCH", path, {"SecureBootEnable": False}, if_match=tag).status == 200
    assert bench.send("PATCH", path, {"SecureBootEnable": True}, if_match=tag).status == 412
    assert bench.get(path)["SecureBootEnable"] is False


def test_secure_boot_and_bios_settings_wait_for_a_reset() -> None:
    bench = Bench()
    assert bench.send("PATCH", f"{SYSTEM}/SecureBoot", {"SecureBootEnable": False}).status == 200
    assert (
        bench.send("PATCH", f"{SYSTEM}/Bios/Settings", {"Attributes": {"InternalCPUModel": "Privileged"}}).status == 200
    )
    assert bench.get(f"{SYSTEM}/SecureBoot")["SecureBootCurrentBoot"] == "Enabled"
    assert bench.get(f"{SYSTEM}/Bios")["Attributes"]["InternalCPUModel"] == "Embedded"
    before = bench.get(SYSTEM)["LastResetTime"]
    assert bench.send("POST", f"{SYSTEM}/Actions/ComputerSystem.Reset", {"ResetType": "ForceRestart"}).status == 200
    assert bench.get(f"{SYSTEM}/SecureBoot")["SecureBootCurrentBoot"] == "Disabled"
    assert bench.get(f"{SYSTEM}/Bios")["Attributes"]["InternalCPUModel"] == "Privileged"
    assert bench.get(SYSTEM)["LastResetTime"] > before


def test_the_mode_waits_for_a_power_cycle_of_the_host() -> None:
    bench = Bench()
    assert bench.send("POST", f"{SYSTEM}/Oem/Nvidia/Actions/Mode.Set", {"Mode": "NicMode"}).status == 200
    assert bench.send("POST", f"{SYSTEM}/Oem/Nvidia/Actions/SOC.ForceReset", {}).status == 200
    assert bench.get(f"{SYSTEM}/Oem/Nvidia")["Mode"] == "DpuMode"
    bench.bmc.card.power_cycle_host()
    assert bench.get(f"{SYSTEM}/Oem/Nvidia")["Mode"] == "NicMode"


def test_the_host_is_locked_out() -> None:
    bench = Bench()
    assert bench.send("POST", f"{SYSTEM}/Oem/Nvidia/Actions/HostRshim.Set", {"HostRshim": "Disabled"}).status == 200
    assert bench.get(f"{SYSTEM}/Oem/Nvidia")["HostRshim"] == "Disabled"
    later = Bench(BLUEFIELD_4)
    path = "/redfish/v1/Chassis/BlueField_0/NetworkAdapters/NvidiaNetworkAdapter/Oem/Nvidia/HostPrivilegeConfig"
    assert later.send("PATCH", f"{path}/Settings", {"PrivilegeMode": "Restricted"}).status == 200
    assert later.get(path)["PrivilegeMode"] == "Privileged"
    reset = "/redfish/v1/Chassis/BlueField_0/Actions/Oem/NvidiaChassis.Reset"
    assert later.send("POST", reset, {"ResetType": "ForcedFullReset"}).status == 200
    assert later.get(path)["PrivilegeMode"] == "Restricted"


def test_an_installation_needs_the_rshim_of_the_bmc() -> None:
    bench = Bench()
    body = {"BmcRShim": {"BmcRShimEnabled": False}}
    assert bench.send("PATCH", f"{MANAGER}/Oem/Nvidia", body).status == 200
    answer = bench.send("POST", SIMPLE_UPDATE, {"ImageURI": "http://images/a.bfb"})
    assert isinstance(answer.body, dict)
    assert bench.get(answer.body["@odata.id"])["TaskState"] == "Exception"
    assert bench.bmc.card.os.startswith("factory")


@settings(max_examples=20)
@given(st.lists(st.floats(0, 300), min_size=1, max_size=8), st.sampled_from(["honest", "fail", "stall", "lie"]))
def test_what_is_read_does_not_depend_on_how_often_it_is_read(pauses: list[float], kind: Any) -> None:
    often, once = Bench(), Bench()
    task = often.begin(Outcome(kind))
    assert once.begin(Outcome(kind)) == task
    for pause in pauses:
        often.passes(pause)
        often.get(task)
        once.passes(pause)
    for path in (
        task,
        SYSTEM,
        f"{SYSTEM}/LogServices/SEL/Entries",
        f"/redfish/v1/UpdateService/FirmwareInventory/{OS}",
    ):
        assert often.get(path) == once.get(path)


def test_an_installation_takes_its_time_and_then_the_card_boots() -> None:
    bench = Bench()
    before = bench.get(SYSTEM)["LastResetTime"]
    task = bench.begin()
    bench.passes(300)
    assert (bench.get(task)["TaskState"], bench.get(task)["PercentComplete"]) == ("Running", 60)
    assert "Version" not in bench.get(f"/redfish/v1/UpdateService/FirmwareInventory/{OS}")
    bench.passes(300)
    assert bench.get(task)["TaskState"] == "Completed"
    assert bench.get(SYSTEM)["LastResetTime"] > before
    assert bench.get(SYSTEM)["BootProgress"]["OemLastState"] == "BL2"
    bench.passes(181)
    assert bench.get(SYSTEM)["BootProgress"]["OemLastState"] == "OsIsRunning"
    assert bench.get(f"/redfish/v1/UpdateService/FirmwareInventory/{OS}")["Version"] == NEW.os


def test_a_lie_is_reported_as_completed_and_changes_nothing() -> None:
    bench = Bench()
    before = bench.get(SYSTEM)
    task = bench.begin(Outcome("lie"))
    bench.passes(1_000)
    assert (bench.get(task)["TaskState"], bench.get(task)["PercentComplete"]) == ("Completed", 100)
    assert bench.get(SYSTEM) == before
    assert bench.get(f"/redfish/v1/UpdateService/FirmwareInventory/{OS}")["Version"].startswith("factory")


def test_a_failure_and_a_stall_happen_at_their_percentage() -> None:
    bench = Bench()
    task = bench.begin(Outcome("stall", 70))
    bench.passes(10_000)
    assert (bench.get(task)["TaskState"], bench.get(task)["PercentComplete"]) == ("Running", 70)
    assert bench.send("POST", SIMPLE_UPDATE, {"ImageURI": "http://images/b.bfb"}).status == 400
    bench.bmc.card.reset("ForceRestart")
    assert bench.get(task)["TaskState"] == "Exception"
    failing = bench.begin(Outcome("fail", 40, "flash worn out"))
    bench.passes(10_000)
    assert (bench.get(failing)["TaskState"], bench.get(failing)["TaskStatus"]) == ("Exception", "Critical")
    assert "flash worn out" in bench.get(failing)["Messages"][-1]["Message"]
    assert "flash worn out" in bench.get(f"{SYSTEM}/LogServices/SEL/Entries")["Members"][-1]["Message"]
    bench.passes(10_000)
    assert bench.get(SYSTEM)["BootProgress"]["OemLastState"] == "UEFI", "no operating system is left to boot"


def test_power_lost_in_the_middle_takes_the_task_the_session_and_the_operating_system() -> None:
    bench = Bench()
    task = bench.begin()
    bench.passes(100)
    bench.bmc.lose_power()
    assert not bench.bmc.is_up
    bench.passes(60)
    assert bench.bmc.is_up
    assert bench.send("GET", task).status == 404
    assert "12V_ATX" in bench.get(f"{SYSTEM}/LogServices/SEL/Entries")["Members"][-1]["Message"]
    bench.passes(10_000)
    assert bench.get(SYSTEM)["BootProgress"]["OemLastState"] == "UEFI"


def test_pushed_firmware_is_active_after_a_restart_of_the_bmc() -> None:
    bench = Bench()
    answer = bench.send("POST", "/redfish/v1/UpdateService", b"BMC firmware 26.04-1\n" + bytes(100))
    assert answer.status == 202
    bench.passes(601)
    assert bench.get("/redfish/v1/UpdateService/FirmwareInventory/Pending_Bundle")["Version"] == "26.04-1"
    assert bench.get(MANAGER)["FirmwareVersion"] != "26.04-1"
    assert bench.send("POST", f"{MANAGER}/Actions/Manager.Reset", {"ResetType": "GracefulRestart"}).status == 200
    assert bench.get(MANAGER)["FirmwareVersion"] == "26.04-1"
    assert bench.send("POST", "/redfish/v1/UpdateService", b"anything").status == 400


def test_a_bundle_waits_for_its_activation_and_a_reset_of_the_whole_card() -> None:
    bench = Bench(BLUEFIELD_4)
    names = [f"/redfish/v1/UpdateService/FirmwareInventory/BlueField_FW_{part}_0" for part in ("BMC", "CPU", "NIC")]
    part = b'--x\r\nContent-Disposition: form-data; name="UpdateFile"\r\n\r\nBlueField bundle 26.10\r\n--x--\r\n'
    assert bench.send("POST", "/redfish/v1/UpdateService/update-multipart", part).status == 202
    bench.passes(601)
    assert bench.get("/redfish/v1/UpdateService/FirmwareInventory/Pending_Bundle")["Version"] == "26.10"
    reset, whole = "/redfish/v1/Chassis/BlueField_0/Actions/Oem/NvidiaChassis.Reset", {"ResetType": "ForcedFullReset"}
    assert bench.send("POST", reset, whole).status == 200
    assert bench.get(names[0])["Version"].startswith("factory")
    targets = [{"@odata.id": name} for name in names]
    assert bench.send("POST", ACTIVATE, {"Targets": [{"@odata.id": f"{names[0]}1"}]}).status == 400
    assert bench.send("POST", ACTIVATE, {"Targets": targets}).status == 200
    assert bench.get(names[0])["Version"].startswith("factory")
    assert bench.send("POST", reset, whole).status == 200
    assert [bench.get(name)["Version"] for name in names] == ["26.10"] * 3
    assert Bench().send("POST", ACTIVATE, {"Targets": targets}).status == 404


def test_sessions_are_limited() -> None:
    bench = Bench()
    body = {"UserName": "root", "Password": PASSWORD}
    path = "/redfish/v1/SessionService/Sessions"
    opened = [bench.send("POST", path, body) for _ in range(SESSIONS_MAX)]
    assert {answer.status for answer in opened} == {201}
    assert bench.send("POST", path, body).status == 503
    assert bench.send("DELETE", opened[0].headers["Location"]).status == 200
    assert bench.send("POST", path, body).status == 201


def test_virtual_media_install_once_at_the_next_reset() -> None:
    bench = Bench(BLUEFIELD_4)
    slot, system = "/redfish/v1/Managers/BMC_0/VirtualMedia/IMAGE", "/redfish/v1/Systems/System_0"
    inserted = bench.send("POST", f"{slot}/Actions/VirtualMedia.InsertMedia", {"Image": "https://images/os.iso"})
    assert inserted.status == 204
    assert bench.send("POST", f"{slot}/Actions/VirtualMedia.InsertMedia", {"Image": "https://i/2"}).status == 400
    once = {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}
    assert bench.send("PATCH", f"{system}/Settings", {"Boot": once}).status == 200
    assert bench.send("POST", f"{system}/Actions/ComputerSystem.Reset", {"ResetType": "ForceRestart"}).status == 200
    fetch = bench.bmc.card.fetches.pop()
    assert fetch.url == "https://images/os.iso"
    bench.bmc.card.fetched(fetch.number, NEW)
    bench.passes(600)
    assert bench.get(system)["BootProgress"]["OemLastState"] == "BL2"
    bench.passes(181)
    assert bench.get(system)["BootProgress"]["OemLastState"] == "OsIsRunning"
    assert bench.get("/redfish/v1/UpdateService/FirmwareInventory/DPU_OS")["Version"] == NEW.os
    assert not bench.bmc.card.fetches
    assert bench.send("POST", f"{slot}/Actions/VirtualMedia.EjectMedia", {}).status == 204
    assert bench.get(slot)["Inserted"] is False


def test_a_reset_to_defaults_brings_back_the_factory() -> None:
    bench = Bench()
    assert bench.send("POST", f"{MANAGER}/Actions/Manager.ResetToDefaults", {"ResetType": "ResetAll"}).status == 200
    assert bench.send("GET", SYSTEM).status == 401
    bench.password = FACTORY_PASSWORD
    assert error_of(bench.send("GET", SYSTEM)) == "PasswordChangeRequired"


def test_faults_at_random_are_the_same_for_a_seed_and_as_frequent_as_their_shares() -> None:
    def drawn() -> list[str | None]:
        faults = Bench(shares=Shares(hang=0.1, cut=0.1, mute=0.2, busy=0.1)).bmc.faults
        return [faults.of(Request("GET", SYSTEM)) for _ in range(2_000)]

    faults = drawn()
    assert faults == drawn()
    for kind, share in (("hang", 0.1), ("cut", 0.1), ("mute", 0.2), ("busy", 0.1), (None, 0.5)):
        assert abs(faults.count(kind) / len(faults) - share) < 0.05


def test_the_metadata_names_every_schema_of_the_resources() -> None:
    text = Bench().send("GET", "/redfish/v1/$metadata").body
    assert isinstance(text, str)
    for namespace in ("ComputerSystem.v1_22_0", "NvidiaManager.v1_9_0.NvRedfish", "SessionCollection"):
        assert f'Namespace="{namespace}"' in text

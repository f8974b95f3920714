"""The resources of the card: its system (the Arm cores), and its chassis with the network adapter."""

from __future__ import annotations

from functools import partial

from drivers.simulators.redfish.card import DPU, MEDIA_TARGETS, NIC
from drivers.simulators.redfish.identity import ROOT
from drivers.simulators.redfish.messages import (
    SUCCESS,
    Answer,
    Field,
    Json,
    apply_patch,
    attribute,
    boolean,
    integer,
    one_of,
    parameters,
)
from drivers.simulators.redfish.routes import Call, Route, collection, link
from drivers.simulators.redfish.tasks import timestamp

RESETS = ("On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle")
BOOT_TARGETS = ("None", "Pxe", "Hdd", *MEDIA_TARGETS, "UefiHttp", "BiosSetup")
_ADAPTER = "NvidiaNetworkAdapter"
_OK = {"Health": "OK", "State": "Enabled"}
_ATTRIBUTES = {
    "InternalCPUModel": one_of("Embedded", "Privileged", "Restricted"),
    "BootTimeout": integer,
    "DisableSpmi": boolean,
}


def _systems(call: Call) -> Json:
    return collection(f"{ROOT}/Systems", "ComputerSystem", [call.bmc.identity.generation.system])


def _system(call: Call) -> Json | None:
    card, identity = call.bmc.card, call.bmc.identity
    last, oem_last = card.boot_progress()
    path = identity.system
    return {
        "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem",
        "@odata.id": path,
        "Id": identity.generation.system,
        "Name": identity.generation.system,
        "SystemType": "DPU",
        "Manufacturer": "NVIDIA",
        "Model": identity.generation.model,
        "PartNumber": identity.part_number,
        "SerialNumber": identity.serial,
        "UUID": identity.uuid,
        "PowerState": "On" if card.powered else "Off",
        "Status": {"Health": "OK", "State": "Enabled" if card.powered else "Disabled"},
        "LastResetTime": timestamp(card.booted),
        "BootProgress": {
            "LastState": last,
            "LastStateTime": timestamp(card.booted),
            **({"OemLastState": oem_last} if last != "None" else {}),
        },
        "Boot": {
            "BootSourceOverrideEnabled": card.boot_enabled,
            "BootSourceOverrideMode": card.boot_mode,
            "BootSourceOverrideTarget": card.boot_target,
            "BootSourceOverrideTarget@Redfish.AllowableValues": list(BOOT_TARGETS),
        },
        "@Redfish.Settings": {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": link(f"{path}/Settings"),
        },
        "Bios": link(f"{path}/Bios"),
        "SecureBoot": link(f"{path}/SecureBoot"),
        "LogServices": link(f"{path}/LogServices"),
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{path}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": list(RESETS),
            }
        },
        "Links": {"Chassis": [link(identity.chassis)], "ManagedBy": [link(identity.manager)]},
        "Oem": {"Nvidia": {"@odata.id": f"{path}/Oem/Nvidia", "@odata.type": _SYSTEM_TYPE}},
    }


_SYSTEM_TYPE = "#NvidiaComputerSystem.NvRedfish.NvidiaComputerSystem"


def _system_settings(call: Call) -> Json | None:
    path = f"{call.bmc.identity.system}/Settings"
    card = call.bmc.card
    return {
        "@odata.type": "#ComputerSystem.v1_22_0.ComputerSystem",
        "@odata.id": path,
        "Id": "Settings",
        "Name": "Pending settings",
        "Boot": {
            "BootSourceOverrideEnabled": card.boot_enabled,
            "BootSourceOverrideMode": card.boot_mode,
            "BootSourceOverrideTarget": card.boot_target,
        },
    }


def _set_system(call: Call) -> Answer:
    card = call.bmc.card
    enabled = one_of("Disabled", "Once", "Continuous")
    apply_patch(
        call.request.json(),
        {
            "Boot/BootSourceOverrideTarget": Field(one_of(*BOOT_TARGETS), attribute(card, "boot_target")),
            "Boot/BootSourceOverrideEnabled": Field(enabled, attribute(card, "boot_enabled")),
            "Boot/BootSourceOverrideMode": Field(one_of("UEFI"), attribute(card, "boot_mode")),
        },
    )
    return Answer(200, SUCCESS)


def _reset(call: Call) -> Answer:
    body = parameters(call.request.json(), {"ResetType": one_of(*RESETS)})
    call.bmc.card.reset(body["ResetType"].replace("ForceOn", "On"))
    return Answer(200, SUCCESS)


def _oem(call: Call) -> Json | None:
    card, identity = call.bmc.card, call.bmc.identity
    return {
        "@odata.type": _SYSTEM_TYPE,
        "@odata.id": f"{identity.system}/Oem/Nvidia",
        "BaseMAC": identity.address(0),
        "Mode": card.mode,
        "HostRshim": "Enabled" if card.host_rshim else "Disabled",
    }


def _set_mode(call: Call) -> Answer:
    card = call.bmc.card
    wanted = parameters(call.request.json(), {"Mode": one_of(DPU, NIC)})["Mode"]
    card.pending_mode = "" if wanted == card.mode else wanted
    return Answer(200, SUCCESS)


def _set_host_rshim(call: Call) -> Answer:
    body = parameters(call.request.json(), {"HostRshim": one_of("Enabled", "Disabled")})
    call.bmc.card.host_rshim = body["HostRshim"] == "Enabled"
    return Answer(200, SUCCESS)


def _force_reset(call: Call) -> Answer:
    parameters(call.request.json(), {})
    call.bmc.card.reset("ForceRestart")
    return Answer(200, SUCCESS)


def _bios(call: Call) -> Json:
    path = f"{call.bmc.identity.system}/Bios"
    return {
        "@odata.type": "#Bios.v1_2_3.Bios",
        "@odata.id": path,
        "Id": "BIOS",
        "Name": "BIOS Configuration",
        "Attributes": dict(call.bmc.card.bios),
        "@Redfish.Settings": {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": link(f"{path}/Settings"),
        },
        "Actions": {"#Bios.ResetBios": {"target": f"{path}/Actions/Bios.ResetBios"}},
    }


def _bios_settings(call: Call) -> Json:
    return {
        "@odata.type": "#Bios.v1_2_3.Bios",
        "@odata.id": f"{call.bmc.identity.system}/Bios/Settings",
        "Id": "Settings",
        "Name": "Pending BIOS Configuration",
        "Attributes": dict(call.bmc.card.pending_bios),
    }


def _set_bios(call: Call) -> Answer:
    pending = call.bmc.card.pending_bios
    fields = {
        f"Attributes/{name}": Field(check, partial(pending.__setitem__, name)) for name, check in _ATTRIBUTES.items()
    }
    apply_patch(call.request.json(), fields)
    return Answer(200, SUCCESS)


def _reset_bios(call: Call) -> Answer:
    parameters(call.request.json(), {})
    call.bmc.card.pending_bios.update(InternalCPUModel="Embedded", BootTimeout=0, DisableSpmi=False)
    return Answer(200, SUCCESS)


def _secure_boot(call: Call) -> Json:
    card = call.bmc.card
    wanted = card.secure_boot if card.pending_secure_boot is None else card.pending_secure_boot
    return {
        "@odata.type": "#SecureBoot.v1_1_2.SecureBoot",
        "@odata.id": f"{call.bmc.identity.system}/SecureBoot",
        "Id": "SecureBoot",
        "Name": "UEFI Secure Boot",
        "SecureBootEnable": wanted,
        "SecureBootCurrentBoot": "Enabled" if card.secure_boot else "Disabled",
        "SecureBootMode": "UserMode",
    }


def _set_secure_boot(call: Call) -> Answer:
    enabled = Field(boolean, attribute(call.bmc.card, "pending_secure_boot"))
    apply_patch(call.request.json(), {"SecureBootEnable": enabled})
    return Answer(200, SUCCESS)


def _log_services(call: Call) -> Json:
    return collection(f"{call.bmc.identity.system}/LogServices", "LogService", ["SEL"])


def _log_service(call: Call) -> Json:
    path = f"{call.bmc.identity.system}/LogServices/SEL"
    return {
        "@odata.type": "#LogService.v1_4_0.LogService",
        "@odata.id": path,
        "Id": "SEL",
        "Name": "System Event Log",
        "LogEntryType": "SEL",
        "OverWritePolicy": "WrapsWhenFull",
        "DateTime": timestamp(call.bmc.now()),
        "Entries": link(f"{path}/Entries"),
        "Actions": {"#LogService.ClearLog": {"target": f"{path}/Actions/LogService.ClearLog"}},
    }


def _entry_resources(call: Call) -> dict[str, Json]:
    path = f"{call.bmc.identity.system}/LogServices/SEL/Entries"
    return {
        str(line.id): {
            "@odata.type": "#LogEntry.v1_15_0.LogEntry",
            "@odata.id": f"{path}/{line.id}",
            "Id": str(line.id),
            "Name": "System Event Log Entry",
            "EntryType": "SEL",
            "EntryCode": "Assert",
            "Created": timestamp(line.time),
            "Message": line.text,
            "Severity": line.severity,
        }
        for line in call.bmc.card.log
    }


def _entries(call: Call) -> Json:
    """The entries are expanded, as bmcweb sends them."""
    found = _entry_resources(call)
    path = f"{call.bmc.identity.system}/LogServices/SEL/Entries"
    return collection(path, "LogEntry", list(found)) | {"Members": list(found.values())}


def _entry(call: Call) -> Json | None:
    return _entry_resources(call).get(call.names[-1])


def _clear_log(call: Call) -> Answer:
    parameters(call.request.json(), {})
    call.bmc.card.log.clear()
    return Answer(200, SUCCESS)


def _chassis_collection(call: Call) -> Json:
    return collection(f"{ROOT}/Chassis", "Chassis", [call.bmc.identity.generation.chassis])


def _chassis(call: Call) -> Json:
    identity = call.bmc.identity
    return {
        "@odata.type": "#Chassis.v1_25_0.Chassis",
        "@odata.id": identity.chassis,
        "Id": identity.generation.chassis,
        "Name": identity.generation.chassis,
        "ChassisType": "Card",
        "Manufacturer": "NVIDIA",
        "Model": identity.generation.model,
        "PartNumber": identity.part_number,
        "SerialNumber": identity.serial,
        "AssetTag": identity.psid,
        "UUID": identity.uuid,
        "PowerState": "On",
        "Status": _OK,
        "NetworkAdapters": link(f"{identity.chassis}/NetworkAdapters"),
        "Links": {"ComputerSystems": [link(identity.system)], "ManagedBy": [link(identity.manager)]},
    }


def _adapters(call: Call) -> Json:
    return collection(f"{call.bmc.identity.chassis}/NetworkAdapters", "NetworkAdapter", [_ADAPTER])


def _adapter(call: Call) -> Json:
    identity, card = call.bmc.identity, call.bmc.card
    path = f"{identity.chassis}/NetworkAdapters/{_ADAPTER}"
    oem: Json = {
        "@odata.type": "#NvidiaNetworkAdapter.v1_2_0.NvidiaNetworkAdapter",
        "HostPrivilegeConfig": link(f"{path}/Oem/Nvidia/HostPrivilegeConfig"),
    }
    if identity.generation.os_by_media:
        oem["DPUOperationMode"] = "DPU" if card.mode == DPU else "NIC"
    return {
        "@odata.type": "#NetworkAdapter.v1_11_0.NetworkAdapter",
        "@odata.id": path,
        "Id": _ADAPTER,
        "Name": _ADAPTER,
        "Manufacturer": "NVIDIA",
        "PartNumber": identity.part_number,
        "SerialNumber": identity.serial,
        "Status": _OK,
        "NetworkDeviceFunctions": link(f"{path}/NetworkDeviceFunctions"),
        "Oem": {"Nvidia": oem},
    }


def _functions(call: Call) -> Json:
    path = f"{call.bmc.identity.chassis}/NetworkAdapters/{_ADAPTER}/NetworkDeviceFunctions"
    return collection(path, "NetworkDeviceFunction", ["eth0f0", "eth1f0"])


def _function(call: Call) -> Json | None:
    number = {"eth0f0": 0, "eth1f0": 1}.get(call.names[-1])
    if number is None:
        return None
    address = call.bmc.identity.address(number)
    path = f"{call.bmc.identity.chassis}/NetworkAdapters/{_ADAPTER}/NetworkDeviceFunctions"
    return {
        "@odata.type": "#NetworkDeviceFunction.v1_9_2.NetworkDeviceFunction",
        "@odata.id": f"{path}/{call.names[-1]}",
        "Id": call.names[-1],
        "Name": call.names[-1],
        "NetDevFuncType": "Ethernet",
        "Ethernet": {"MACAddress": address, "PermanentMACAddress": address, "MTUSize": 9216},
        "Status": _OK,
    }


def _privileges(call: Call) -> Json:
    return {
        "@odata.type": "#NvidiaHostPrivilegeConfig.v1_0_0.NvidiaHostPrivilegeConfig",
        "@odata.id": _privileges_path(call),
        "Id": "HostPrivilegeConfig",
        "Name": "Host Privilege Configuration",
        "PrivilegeMode": call.bmc.card.privilege,
        "@Redfish.Settings": {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": link(f"{_privileges_path(call)}/Settings"),
        },
    }


def _privileges_path(call: Call) -> str:
    return f"{call.bmc.identity.chassis}/NetworkAdapters/{_ADAPTER}/Oem/Nvidia/HostPrivilegeConfig"


def _pending_privileges(call: Call) -> Json:
    card = call.bmc.card
    return {
        "@odata.type": "#NvidiaHostPrivilegeConfig.v1_0_0.NvidiaHostPrivilegeConfig",
        "@odata.id": f"{_privileges_path(call)}/Settings",
        "Id": "Settings",
        "Name": "Pending Host Privilege Configuration",
        "PrivilegeMode": card.pending_privilege or card.privilege,
    }


def _set_privileges(call: Call) -> Answer:
    mode = Field(one_of("Privileged", "Restricted"), attribute(call.bmc.card, "pending_privilege"))
    apply_patch(call.request.json(), {"PrivilegeMode": mode})
    return Answer(200, SUCCESS)


def _chassis_reset(call: Call) -> Answer:
    kinds = ("FullReset", "ForcedFullReset", "DpuReset", "ForcedDpuReset", "ForceDpuReset", "ArmReset", "ArmShutdown")
    kind = parameters(call.request.json(), {"ResetType": one_of(*kinds)})["ResetType"]
    if kind == "ArmShutdown":
        call.bmc.card.reset("GracefulShutdown")
    elif kind.endswith("FullReset"):
        is_updated = call.bmc.identity.bmc_firmware in call.bmc.card.activated
        call.bmc.card.power_cycle_host()
        if is_updated:
            call.bmc.restart()
    else:
        call.bmc.card.reset("ForceRestart")
    return Answer(200, SUCCESS)


_SYSTEM = f"{ROOT}/Systems/{{}}"
_CHASSIS = f"{ROOT}/Chassis/{{}}"
_ADAPTERS = f"{_CHASSIS}/NetworkAdapters"
_CARD = f"{_ADAPTERS}/{_ADAPTER}"
ROUTES = [
    Route(f"{ROOT}/Systems", _systems),
    Route(_SYSTEM, _system, {"PATCH": _set_system}),
    Route(f"{_SYSTEM}/Settings", _system_settings, {"PATCH": _set_system}),
    Route(f"{_SYSTEM}/Actions/ComputerSystem.Reset", None, {"POST": _reset}),
    Route(f"{_SYSTEM}/Oem/Nvidia", _oem),
    Route(f"{_SYSTEM}/Oem/Nvidia/Actions/Mode.Set", None, {"POST": _set_mode}),
    Route(f"{_SYSTEM}/Oem/Nvidia/Actions/HostRshim.Set", None, {"POST": _set_host_rshim}),
    Route(f"{_SYSTEM}/Oem/Nvidia/Actions/SOC.ForceReset", None, {"POST": _force_reset}),
    Route(f"{_SYSTEM}/Bios", _bios),
    Route(f"{_SYSTEM}/Bios/Settings", _bios_settings, {"PATCH": _set_bios}),
    Route(f"{_SYSTEM}/Bios/Actions/Bios.ResetBios", None, {"POST": _reset_bios}),
    Route(f"{_SYSTEM}/SecureBoot", _secure_boot, {"PATCH": _set_secure_boot}),
    Route(f"{_SYSTEM}/LogServices", _log_services),
    Route(f"{_SYSTEM}/LogServices/SEL", _log_service),
    Route(f"{_SYSTEM}/LogServices/SEL/Entries", _entries),
    Route(f"{_SYSTEM}/LogServices/SEL/Entries/{{}}", _entry),
    Route(f"{_SYSTEM}/LogServices/SEL/Actions/LogService.ClearLog", None, {"POST": _clear_log}),
    Route(f"{ROOT}/Chassis", _chassis_collection),
    Route(_CHASSIS, _chassis),
    Route(f"{_CHASSIS}/Actions/Oem/NvidiaChassis.Reset", None, {"POST": _chassis_reset}),
    Route(_ADAPTERS, _adapters),
    Route(_CARD, _adapter),
    Route(f"{_CARD}/NetworkDeviceFunctions", _functions),
    Route(f"{_CARD}/NetworkDeviceFunctions/{{}}", _function),
    Route(f"{_CARD}/Oem/Nvidia/HostPrivilegeConfig", _privileges),
    Route(f"{_CARD}/Oem/Nvidia/HostPrivilegeConfig/Settings", _pending_privileges, {"PATCH": _set_privileges}),
]

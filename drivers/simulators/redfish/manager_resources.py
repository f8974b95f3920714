"""The resources of the BMC itself: its manager, network protocols and virtual media."""

from __future__ import annotations

from drivers.simulators.redfish.account_resources import server_certificate
from drivers.simulators.redfish.card import Media
from drivers.simulators.redfish.certificates import resource as certificate_resource
from drivers.simulators.redfish.identity import ROOT
from drivers.simulators.redfish.messages import (
    SUCCESS,
    Answer,
    Field,
    Json,
    Refused,
    apply_patch,
    attribute,
    boolean,
    one_of,
    parameters,
    text,
)
from drivers.simulators.redfish.routes import Call, Route, collection, link, missing
from drivers.simulators.redfish.tasks import timestamp

_TYPE = "#NvidiaManager.v1_9_0.NvRedfish.NvidiaManager"


def _managers(call: Call) -> Json:
    return collection(f"{ROOT}/Managers", "Manager", [call.bmc.identity.generation.manager])


def _manager(call: Call) -> Json:
    identity, card = call.bmc.identity, call.bmc.card
    path = identity.manager
    found = {
        "@odata.type": "#Manager.v1_20_0.Manager",
        "@odata.id": path,
        "Id": identity.generation.manager,
        "Name": "OpenBMC Manager",
        "ManagerType": "BMC",
        "Manufacturer": "NVIDIA",
        "Model": "OpenBmc",
        "SerialNumber": identity.serial,
        "UUID": identity.uuid,
        "FirmwareVersion": card.firmware[identity.bmc_firmware],
        "DateTime": timestamp(call.bmc.now()),
        "PowerState": "On",
        "Status": {"Health": "OK", "State": "Enabled"},
        "EthernetInterfaces": link(f"{path}/EthernetInterfaces"),
        "NetworkProtocol": link(f"{path}/NetworkProtocol"),
        "VirtualMedia": link(f"{path}/VirtualMedia"),
        "Actions": {
            "#Manager.Reset": {
                "target": f"{path}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": ["GracefulRestart", "ForceRestart"],
            },
            "#Manager.ResetToDefaults": {
                "target": f"{path}/Actions/Manager.ResetToDefaults",
                "ResetType@Redfish.AllowableValues": ["ResetAll"],
            },
        },
        "Links": {"ManagerForServers": [link(identity.system)], "ManagerForChassis": [link(identity.chassis)]},
    }
    if not identity.generation.os_by_media:
        found["Oem"] = {"Nvidia": {"@odata.id": f"{path}/Oem/Nvidia", "@odata.type": _TYPE}}
    return found


def _oem(call: Call) -> Json | None:
    """BlueField-4 has no such resource."""
    if call.bmc.identity.generation.os_by_media:
        return None
    return {
        "@odata.type": _TYPE,
        "@odata.id": f"{call.bmc.identity.manager}/Oem/Nvidia",
        "BmcRShim": {"BmcRShimEnabled": call.bmc.card.bmc_rshim},
    }


def _set_oem(call: Call) -> Answer:
    if _oem(call) is None:
        raise missing(call.path)
    enabled = Field(boolean, attribute(call.bmc.card, "bmc_rshim"))
    apply_patch(call.request.json(), {"BmcRShim/BmcRShimEnabled": enabled})
    return Answer(200, SUCCESS)


def _reset(call: Call) -> Answer:
    parameters(call.request.json(), {"ResetType": one_of("GracefulRestart", "ForceRestart")})
    call.bmc.restart()
    return Answer(200, SUCCESS)


def _reset_to_defaults(call: Call) -> Answer:
    parameters(call.request.json(), {"ResetType": one_of("ResetAll")})
    call.bmc.reset_to_defaults()
    return Answer(200, SUCCESS)


def _interfaces(call: Call) -> Json:
    return collection(f"{call.bmc.identity.manager}/EthernetInterfaces", "EthernetInterface", ["eth0"])


def _interface(call: Call) -> Json | None:
    if call.names[-1] != "eth0":
        return None
    address = call.bmc.identity.address(2)
    return {
        "@odata.type": "#EthernetInterface.v1_12_2.EthernetInterface",
        "@odata.id": f"{call.bmc.identity.manager}/EthernetInterfaces/eth0",
        "Id": "eth0",
        "Name": "Manager Ethernet Interface",
        "InterfaceEnabled": True,
        "MACAddress": address,
        "PermanentMACAddress": address,
        "LinkStatus": "LinkUp",
        "Status": {"Health": "OK", "State": "Enabled"},
    }


def _protocol(call: Call) -> Json:
    path = f"{call.bmc.identity.manager}/NetworkProtocol"
    return {
        "@odata.type": "#ManagerNetworkProtocol.v1_10_1.ManagerNetworkProtocol",
        "@odata.id": path,
        "Id": "NetworkProtocol",
        "Name": "Manager Network Protocol",
        "Status": {"Health": "OK", "State": "Enabled"},
        "HTTP": {"ProtocolEnabled": False, "Port": None},
        "HTTPS": {"ProtocolEnabled": True, "Port": 443, "Certificates": link(f"{path}/HTTPS/Certificates")},
    }


def _certificates(call: Call) -> Json:
    return collection(server_certificate(call).rpartition("/")[0], "Certificate", ["1"])


def _certificate(call: Call) -> Json | None:
    if call.names[-1] != "1":
        return None
    return certificate_resource(server_certificate(call), call.bmc.certificates.certificate)


def _media(call: Call) -> Json:
    return collection(f"{call.bmc.identity.manager}/VirtualMedia", "VirtualMedia", list(call.bmc.card.media))


def _slot(call: Call) -> Json | None:
    media = call.bmc.card.media.get(call.names[-1])
    if media is None:
        return None
    path = f"{call.bmc.identity.manager}/VirtualMedia/{call.names[-1]}"
    found = {
        "@odata.type": "#VirtualMedia.v1_6_5.VirtualMedia",
        "@odata.id": path,
        "Id": call.names[-1],
        "Name": f"Virtual Media {call.names[-1]}",
        "MediaTypes": ["CD", "USBStick"],
        "Inserted": bool(media.image),
        "ConnectedVia": "URI" if media.image else "NotConnected",
        "Image": media.image or None,
        "ImageName": media.image.rpartition("/")[2] or None,
        "WriteProtected": media.is_write_protected,
        "TransferMethod": "Stream",
        "Actions": {
            f"#VirtualMedia.{name}": {"target": f"{path}/Actions/VirtualMedia.{name}"}
            for name in ("InsertMedia", "EjectMedia")
        },
    }
    if media.image:
        scheme = media.image.partition(":")[0].upper()
        found["TransferProtocolType"] = "OEM" if scheme == "FILE" else scheme
    return found


def _known(call: Call) -> Media:
    media = call.bmc.card.media.get(call.names[-1])
    if media is None:
        raise missing(call.path)
    return media


def _insert(call: Call) -> Answer:
    media = _known(call)
    optional = {
        "Inserted": boolean,
        "WriteProtected": boolean,
        "TransferMethod": one_of("Stream"),
        "TransferProtocolType": one_of("HTTP", "HTTPS"),
        "MediaType": one_of("CD", "USBStick"),
        "UserName": text,
        "Password": text,
    }
    body = parameters(call.request.json(), {"Image": text}, optional)
    if media.image:
        raise Refused(400, "ResourceInUse", "The change to the requested resource failed: media is inserted.")
    if body["Image"].partition("://")[0] not in ("http", "https") and not call.bmc.card.has_file(body["Image"]):
        raise Refused(400, "ActionParameterValueFormatError", "Image must be a URL of http or https, or a file.")
    media.image, media.is_write_protected = body["Image"], body.get("WriteProtected", True)
    return Answer(204)


def _eject(call: Call) -> Answer:
    media = _known(call)
    parameters(call.request.json(), {})
    if not media.image:
        raise Refused(400, "ResourceNotFound", "The requested resource of type VirtualMedia has no media.")
    media.image = ""
    return Answer(204)


_MANAGER = f"{ROOT}/Managers/{{}}"
_PROTOCOL = f"{_MANAGER}/NetworkProtocol"
_SLOT = f"{_MANAGER}/VirtualMedia/{{}}"
ROUTES = [
    Route(f"{ROOT}/Managers", _managers),
    Route(_MANAGER, _manager),
    Route(f"{_MANAGER}/Actions/Manager.Reset", None, {"POST": _reset}),
    Route(f"{_MANAGER}/Actions/Manager.ResetToDefaults", None, {"POST": _reset_to_defaults}),
    Route(f"{_MANAGER}/Oem/Nvidia", _oem, {"PATCH": _set_oem}),
    Route(f"{_MANAGER}/EthernetInterfaces", _interfaces),
    Route(f"{_MANAGER}/EthernetInterfaces/{{}}", _interface),
    Route(_PROTOCOL, _protocol),
    Route(f"{_PROTOCOL}/HTTPS/Certificates", _certificates),
    Route(f"{_PROTOCOL}/HTTPS/Certificates/{{}}", _certificate),
    Route(f"{_MANAGER}/VirtualMedia", _media),
    Route(_SLOT, _slot),
    Route(f"{_SLOT}/Actions/VirtualMedia.InsertMedia", None, {"POST": _insert}),
    Route(f"{_SLOT}/Actions/VirtualMedia.EjectMedia", None, {"POST": _eject}),
]

"""The resources of updates: the update service with its inventory, and the tasks that show its progress."""

from __future__ import annotations

from typing import Any

from drivers.images.pldm import PACKAGE, PackageReader
from drivers.simulators.redfish.card import BUNDLE, OS, Image
from drivers.simulators.redfish.faults import update_in_progress
from drivers.simulators.redfish.identity import ROOT
from drivers.simulators.redfish.messages import SUCCESS, Answer, Json, Refused, Request, one_of, parameters, text
from drivers.simulators.redfish.routes import Call, Route, collection, link, missing
from drivers.simulators.redfish.tasks import Task

SERVICE = f"{ROOT}/UpdateService"
INVENTORY = f"{SERVICE}/FirmwareInventory"
SIMPLE_UPDATE = f"{SERVICE}/Actions/UpdateService.SimpleUpdate"
ACTIVATE = f"{SERVICE}/Actions/UpdateService.Activate"
PUSHED, PUSHED_BUNDLE = b"BMC firmware ", b"BlueField bundle "
"""The first bytes of a pushed file of firmware; its version follows in the same line."""
RETRY_AFTER = {"Retry-After": "1"}


def _service(call: Call) -> Json:
    activate = {"#UpdateService.Activate": {"target": ACTIVATE}} if call.bmc.identity.bundle else {}
    pull = {"target": SIMPLE_UPDATE, "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"]}
    return {
        "@odata.type": "#UpdateService.v1_16_0.UpdateService",
        "@odata.id": SERVICE,
        "Id": "UpdateService",
        "Name": "Update Service",
        "ServiceEnabled": True,
        "Status": {"Health": "OK", "State": "Enabled"},
        "HttpPushUri": SERVICE,
        "HttpPushUriOptions": {"HttpPushUriApplyTime": {"ApplyTime": "OnReset"}},
        "MultipartHttpPushUri": f"{SERVICE}/update-multipart",
        "MaxImageSizeBytes": 1 << 30,
        "FirmwareInventory": link(INVENTORY),
        "Actions": ({"#UpdateService.SimpleUpdate": pull} if call.bmc.card.pulls else {}) | activate,
    }


def _inventory(call: Call) -> Json:
    names = list(call.bmc.card.firmware) + ([BUNDLE] if call.bmc.card.pending_firmware else [])
    return collection(INVENTORY, "SoftwareInventory", names)


def _member(call: Call) -> Json | None:
    card, name = call.bmc.card, call.names[0]
    version = card.firmware.get(name)
    if name == BUNDLE:
        version = next(iter(card.pending_firmware.values()), None)
    if version is None:
        return None
    related = call.bmc.identity.system if name == OS else call.bmc.identity.manager
    found = {
        "@odata.type": "#SoftwareInventory.v1_10_2.SoftwareInventory",
        "@odata.id": f"{INVENTORY}/{name}",
        "Id": name,
        "Name": "Software Inventory",
        "Manufacturer": "NVIDIA",
        "SoftwareId": f"0x{sum(name.encode()):04X}",
        "Updateable": True,
        "RelatedItem": [link(related)],
        "RelatedItem@odata.count": 1,
        "Status": {"Health": "OK", "State": "Enabled" if name != OS or card.os else "Disabled"},
    }
    if version := (version if name != OS else card.os):
        found["Version"] = version
    return found


def _texts(value: Any) -> str:
    return "" if isinstance(value, list) and all(isinstance(each, str) for each in value) else "must be a list of texts"


def _simple_update(call: Call) -> Answer:
    if not call.bmc.card.pulls:
        raise missing(call.path)
    optional = {"TransferProtocol": one_of("HTTP", "HTTPS"), "Targets": _texts, "Username": text, "Password": text}
    body = parameters(call.request.json(), {"ImageURI": text}, optional)
    card, targets = call.bmc.card, body.get("Targets") or [f"{INVENTORY}/{OS}"]
    is_bundle = bool(call.bmc.identity.bundle) and not body.get("Targets")
    names = [target.rpartition("/")[2] for target in targets]
    if len(names) != 1 or names[0] not in card.firmware or targets[0] != f"{INVENTORY}/{names[0]}":
        raise Refused(400, "ActionParameterValueNotInList", "Targets must name one member of FirmwareInventory.")
    url = body["ImageURI"]
    if "://" not in url:
        if "TransferProtocol" not in body:
            raise Refused(400, "ActionParameterMissing", "The action requires the parameter TransferProtocol.")
        url = f"{body['TransferProtocol'].lower()}://{url}"
    if url.partition("://")[0] not in ("http", "https"):
        raise Refused(400, "ActionParameterValueFormatError", "ImageURI must be a URL of http or https.")
    return _begin(call, BUNDLE if is_bundle else names[0], url)


def _push(call: Call) -> Answer:
    """Firmware as the body of a request: of a type octet-stream, or one part of several."""
    content, identity = _file(call.request), call.bmc.identity
    if version := _package_version(content):
        return _pushed(call, BUNDLE if identity.bundle else identity.bmc_firmware, version)
    targets = {PUSHED: identity.bmc_firmware} | ({PUSHED_BUNDLE: BUNDLE} if identity.bundle else {})
    mark = next((mark for mark in targets if mark in content), None)
    if mark is None:
        raise Refused(400, "InvalidUpload", "Invalid file uploaded to the update service: no firmware found.")
    version = content.partition(mark)[2].partition(b"\n")[0].strip(b"\r ").decode(errors="replace")
    return _pushed(call, targets[mark], version)


def _file(request: Request) -> bytes:
    """The file in the body of a request, which may have several parts. Raises Refused."""
    kind, _, boundary = request.headers.get("content-type", "").partition("boundary=")
    if not kind.startswith("multipart/") or not boundary:
        return request.body
    for part in request.body.split(b"--" + boundary.strip('"').encode()):
        about, _, content = part.partition(b"\r\n\r\n")
        if b'name="UpdateFile"' in about:
            return content.removesuffix(b"\r\n")
    raise Refused(400, "ActionParameterMissing", "The request requires the part UpdateFile.")


def _package_version(content: bytes) -> str:
    """The version of the first component of a package of PLDM; empty for another file."""
    reader = PackageReader()
    reader.feed(content)
    return next((text for name, text in sorted(reader.versions().items()) if name != PACKAGE), "")


def _pushed(call: Call, target: str, version: str) -> Answer:
    """Begin to write firmware that has arrived."""
    answer = _begin(call._replace(request=call.request._replace(body=b"")), target, "")
    if answer.status == 202 and (work := call.bmc.card.work) is not None:
        call.bmc.card.fetched(work.fetch, Image(version, {}))
    return answer


def _activate(call: Call) -> Answer:
    """Let pending firmware become active at the next reset of the whole card."""
    card = call.bmc.card
    if not call.bmc.identity.bundle:
        raise missing(call.path)
    targets = parameters(call.request.json(), {"Targets": _references})["Targets"]
    names = {target["@odata.id"].rpartition("/")[2] for target in targets}
    if names == {BUNDLE}:
        names = set(card.pending_firmware)
    if not names or not names <= set(card.pending_firmware):
        raise Refused(400, "ActionParameterValueNotInList", "Targets must name firmware that is pending.")
    card.activated |= names
    return Answer(200, SUCCESS)


def _references(value: Any) -> str:
    is_list = isinstance(value, list) and all(
        isinstance(each, dict) and isinstance(each.get("@odata.id"), str) for each in value
    )
    return "" if is_list else "must be a list of references"


def _begin(call: Call, target: str, url: str) -> Answer:
    card = call.bmc.card
    if card.is_busy:
        return update_in_progress()
    task = call.bmc.tasks.begin(f"Task {len(call.bmc.tasks.by_id)}", call.request, call.bmc.now())
    card.install(url, target, task)
    return Answer(202, task.resource(), RETRY_AFTER | {"Location": task.monitor})


def _task_service(call: Call) -> Json:
    return {
        "@odata.type": "#TaskService.v1_1_4.TaskService",
        "@odata.id": f"{ROOT}/TaskService",
        "Id": "TaskService",
        "Name": "Task Service",
        "ServiceEnabled": True,
        "CompletedTaskOverWritePolicy": "Oldest",
        "LifeCycleEventOnTaskStateChange": False,
        "Status": {"Health": "OK", "State": "Enabled"},
        "Tasks": link(f"{ROOT}/TaskService/Tasks"),
    }


def _tasks(call: Call) -> Json:
    return collection(f"{ROOT}/TaskService/Tasks", "Task", list(call.bmc.tasks.by_id))


def _task(call: Call) -> Json | None:
    task = call.bmc.tasks.by_id.get(call.names[0])
    return None if task is None else task.resource()


def _known(call: Call) -> Task:
    task = call.bmc.tasks.by_id.get(call.names[0])
    if task is None:
        raise missing(call.path)
    return task


def _monitor(call: Call) -> Answer:
    """202 with the task while it runs; then the result of the operation."""
    task = _known(call)
    if task.ended is None:
        return Answer(202, task.resource(), RETRY_AFTER | {"Location": task.monitor})
    return Answer(200, SUCCESS if task.state == "Completed" else {"@Message.ExtendedInfo": list(task.messages)})


ROUTES = [
    Route(SERVICE, _service, {"POST": _push}, unlisted=frozenset({"POST"})),
    Route(f"{SERVICE}/update-multipart", None, {"POST": _push}),
    Route(SIMPLE_UPDATE, None, {"POST": _simple_update}),
    Route(ACTIVATE, None, {"POST": _activate}),
    Route(INVENTORY, _inventory),
    Route(f"{INVENTORY}/{{}}", _member),
    Route(f"{ROOT}/TaskService", _task_service),
    Route(f"{ROOT}/TaskService/Tasks", _tasks),
    Route(f"{ROOT}/TaskService/Tasks/{{}}", _task),
    Route(f"{ROOT}/TaskService/TaskMonitors/{{}}", None, {"GET": _monitor}),
]

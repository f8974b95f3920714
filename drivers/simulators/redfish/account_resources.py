"""The resources of the service itself: its root, sessions, accounts and certificates."""

from __future__ import annotations

from drivers.simulators.redfish.accounts import PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN
from drivers.simulators.redfish.certificates import resource as certificate_resource
from drivers.simulators.redfish.identity import ROOT
from drivers.simulators.redfish.messages import (
    SUCCESS,
    Answer,
    Field,
    Json,
    apply_patch,
    attribute,
    boolean,
    extended_info,
    integer,
    message,
    parameters,
    text,
)
from drivers.simulators.redfish.routes import Call, Route, collection, link, missing
from drivers.simulators.redfish.tasks import timestamp

SESSIONS = f"{ROOT}/SessionService/Sessions"
ACCOUNTS = f"{ROOT}/AccountService/Accounts"
CLIENT_CERTIFICATES = f"{ROOT}/AccountService/MultiFactorAuth/ClientCertificate/Certificates"
_SERVICES = {
    "AccountService": "AccountService",
    "CertificateService": "CertificateService",
    "Chassis": "Chassis",
    "Managers": "Managers",
    "SessionService": "SessionService",
    "Systems": "Systems",
    "Tasks": "TaskService",
    "UpdateService": "UpdateService",
}


def _versions(call: Call) -> Json:
    return {"v1": f"{ROOT}/"}


def _odata(call: Call) -> Json:
    names = [("Service", f"{ROOT}/"), *((name, f"{ROOT}/{path}") for name, path in _SERVICES.items())]
    values = [{"name": name, "kind": "Singleton", "url": path} for name, path in names]
    return {"@odata.context": f"{ROOT}/$metadata", "value": values}


def _root(call: Call) -> Json:
    identity = call.bmc.identity
    return {
        "@odata.type": "#ServiceRoot.v1_17_0.ServiceRoot",
        "@odata.id": f"{ROOT}/",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.17.0",
        "Vendor": "NVIDIA",
        "Product": identity.generation.product,
        "UUID": identity.uuid,
        "ProtocolFeaturesSupported": {
            "ExpandQuery": {"ExpandAll": False, "Levels": False, "Links": False, "NoLinks": False},
            "ExcerptQuery": False,
            "FilterQuery": False,
            "OnlyMemberQuery": False,
            "SelectQuery": False,
        },
        "Links": {
            "Sessions": link(SESSIONS),
            "ManagerProvidingService": link(identity.manager),
        },
        **{name: link(f"{ROOT}/{path}") for name, path in _SERVICES.items()},
    }


def _session_service(call: Call) -> Json:
    return {
        "@odata.type": "#SessionService.v1_2_0.SessionService",
        "@odata.id": f"{ROOT}/SessionService",
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": True,
        "SessionTimeout": int(call.bmc.accounts.session_timeout.total_seconds()),
        "Sessions": link(SESSIONS),
    }


def _sessions(call: Call) -> Json:
    return collection(SESSIONS, "Session", list(call.bmc.accounts.sessions))


def _session(call: Call) -> Json | None:
    session = call.bmc.accounts.sessions.get(call.names[0])
    if session is None:
        return None
    found = {
        "@odata.type": "#Session.v1_8_0.Session",
        "@odata.id": f"{SESSIONS}/{session.id}",
        "Id": session.id,
        "Name": "User Session",
        "UserName": session.user,
        "SessionType": "Redfish",
        "CreatedTime": timestamp(session.created),
        "Context": session.context,
        "ClientOriginIPAddress": session.origin,
    }
    return {name: value for name, value in found.items() if value}


def _open_session(call: Call) -> Answer:
    body = parameters(call.request.json(), {"UserName": text, "Password": text}, {"Context": text})
    accounts = call.bmc.accounts
    opened = accounts.open(
        body["UserName"], body["Password"], context=body.get("Context", ""), origin=call.request.origin
    )
    found = _session(call._replace(names=(opened.id,)))
    assert found is not None
    if accounts.users[opened.user].must_change:
        path = f"{ACCOUNTS}/{opened.user}"
        sentence = "The password provided for this account must be changed before access is granted."
        found |= extended_info(message("PasswordChangeRequired", f"{sentence} PATCH {path}.", path))
    headers = {"X-Auth-Token": opened.token, "Location": f"{SESSIONS}/{opened.id}"}
    return Answer(201, found, headers)


def _close_session(call: Call) -> Answer:
    if call.bmc.accounts.sessions.pop(call.names[0], None) is None:
        raise missing(call.path)
    return Answer(200, SUCCESS)


def _account_service(call: Call) -> Json:
    accepts = call.bmc.accounts.accepts_certificates
    basic = call.bmc.accounts.accepts_basic
    methods = {"BasicAuth": basic, "Cookie": False, "SessionToken": True, "TLS": accepts, "XToken": True}
    return {
        "@odata.type": "#AccountService.v1_15_0.AccountService",
        "@odata.id": f"{ROOT}/AccountService",
        "Id": "AccountService",
        "Name": "Account Service",
        "ServiceEnabled": True,
        "MinPasswordLength": PASSWORD_LENGTH_MIN,
        "MaxPasswordLength": PASSWORD_LENGTH_MAX,
        "AccountLockoutThreshold": call.bmc.accounts.lockout_failures,
        "AccountLockoutDuration": int(call.bmc.accounts.lockout.total_seconds()),
        "HTTPBasicAuth": "Enabled" if basic else "Disabled",
        "MultiFactorAuth": {
            "ClientCertificate": {
                "Enabled": accepts,
                "CertificateMappingAttribute": "CommonName",
                "RespondToUnauthenticatedClients": True,
                "Certificates": link(CLIENT_CERTIFICATES),
            }
        },
        "Accounts": link(ACCOUNTS),
        "Roles": link(f"{ROOT}/AccountService/Roles"),
        "Oem": {"OpenBMC": {"@odata.type": "#OpenBMCAccountService.v1_0_0.AccountService", "AuthMethods": methods}},
    }


def _set_account_service(call: Call) -> Answer:
    accounts = call.bmc.accounts
    accepts_certificates = Field(boolean, attribute(accounts, "accepts_certificates"))
    apply_patch(
        call.request.json(),
        {
            "Oem/OpenBMC/AuthMethods/TLS": accepts_certificates,
            "Oem/OpenBMC/AuthMethods/BasicAuth": Field(boolean, attribute(accounts, "accepts_basic")),
            "MultiFactorAuth/ClientCertificate/Enabled": accepts_certificates,
            "AccountLockoutThreshold": Field(integer, attribute(accounts, "lockout_failures")),
        },
    )
    call.bmc.certificates.changes += 1
    return Answer(200, SUCCESS)


def _accounts(call: Call) -> Json:
    return collection(ACCOUNTS, "ManagerAccount", list(call.bmc.accounts.users))


def _account(call: Call) -> Json | None:
    account = call.bmc.accounts.users.get(call.names[0])
    if account is None:
        return None
    return {
        "@odata.type": "#ManagerAccount.v1_11_0.ManagerAccount",
        "@odata.id": f"{ACCOUNTS}/{account.name}",
        "Id": account.name,
        "Name": "User Account",
        "UserName": account.name,
        "Password": None,
        "PasswordChangeRequired": account.must_change,
        "AccountTypes": ["Redfish"],
        "Enabled": True,
        "Locked": account.locked_until is not None and call.bmc.now() < account.locked_until,
        "RoleId": "Administrator",
        "Links": {"Role": link(f"{ROOT}/AccountService/Roles/Administrator")},
    }


def _set_account(call: Call) -> Answer:
    accounts = call.bmc.accounts
    account = accounts.users.get(call.names[0])
    if account is None:
        raise missing(call.path)
    password = Field(
        lambda value: accounts.fault_of(account, value), lambda value: accounts.set_password(account, value)
    )
    apply_patch(call.request.json(), {"Password": password})
    return Answer(200, SUCCESS)


def _roles(call: Call) -> Json:
    return collection(f"{ROOT}/AccountService/Roles", "Role", ["Administrator"])


def _role(call: Call) -> Json | None:
    if call.names[0] != "Administrator":
        return None
    return {
        "@odata.type": "#Role.v1_3_3.Role",
        "@odata.id": f"{ROOT}/AccountService/Roles/Administrator",
        "Id": "Administrator",
        "Name": "User Role",
        "RoleId": "Administrator",
        "IsPredefined": True,
        "AssignedPrivileges": ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"],
    }


def server_certificate(call: Call) -> str:
    """The path of the certificate of the BMC."""
    return f"{call.bmc.identity.manager}/NetworkProtocol/HTTPS/Certificates/1"


def _certificate_service(call: Call) -> Json:
    path = f"{ROOT}/CertificateService"
    actions = [f"#CertificateService.{name}" for name in ("GenerateCSR", "ReplaceCertificate")]
    return {
        "@odata.type": "#CertificateService.v1_0_5.CertificateService",
        "@odata.id": path,
        "Id": "CertificateService",
        "Name": "Certificate Service",
        "CertificateLocations": link(f"{path}/CertificateLocations"),
        "Actions": {name: {"target": f"{path}/Actions/{name[1:]}"} for name in actions},
    }


def _locations(call: Call) -> Json:
    authorities = [f"{CLIENT_CERTIFICATES}/{number}" for number in call.bmc.certificates.authorities]
    return {
        "@odata.type": "#CertificateLocations.v1_0_4.CertificateLocations",
        "@odata.id": f"{ROOT}/CertificateService/CertificateLocations",
        "Id": "CertificateLocations",
        "Name": "Certificate Locations",
        "Links": {
            "Certificates": [link(path) for path in (server_certificate(call), *authorities)],
            "Certificates@odata.count": 1 + len(authorities),
        },
    }


def _generate_csr(call: Call) -> Answer:
    where = server_certificate(call).rpartition("/")[0]
    request = call.bmc.certificates.request(call.request.json(), where)
    return Answer(200, {"CSRString": request, "CertificateCollection": link(where)})


def _reference(value: object) -> str:
    return "" if isinstance(value, dict) and isinstance(value.get("@odata.id"), str) else "must be a reference"


def _replace_certificate(call: Call) -> Answer:
    needed = {"CertificateString": text, "CertificateType": text, "CertificateUri": _reference}
    body = parameters(call.request.json(), needed)
    path, pem = body["CertificateUri"]["@odata.id"], body["CertificateString"]
    certificates = call.bmc.certificates
    if path == server_certificate(call):
        certificates.replace(pem)
    elif "Certificates/" in path and (number := path.rpartition("/")[2]) in certificates.authorities:
        certificates.trust(pem, number)
    else:
        raise missing(path)
    return Answer(204, None, {"Location": path})


def _authorities(call: Call) -> Json:
    return collection(call.path, "Certificate", list(call.bmc.certificates.authorities))


def _authority(call: Call) -> Json | None:
    found = call.bmc.certificates.authorities.get(call.names[-1])
    return None if found is None else certificate_resource(call.path, found)


def _trust(call: Call) -> Answer:
    body = parameters(call.request.json(), {"CertificateString": text, "CertificateType": text})
    number = call.bmc.certificates.trust(body["CertificateString"])
    path = f"{call.path}/{number}"
    found = certificate_resource(path, call.bmc.certificates.authorities[number])
    return Answer(201, found, {"Location": path})


def _distrust(call: Call) -> Answer:
    if call.names[-1] not in call.bmc.certificates.authorities:
        raise missing(call.path)
    call.bmc.certificates.distrust(call.names[-1])
    return Answer(200, SUCCESS)


_GET = frozenset({"GET", "HEAD"})
ROUTES = [
    Route("/redfish", _versions, public=_GET),
    Route(f"{ROOT}/odata", _odata, public=_GET),
    Route(ROOT, _root, public=_GET),
    Route(f"{ROOT}/SessionService", _session_service),
    Route(SESSIONS, _sessions, {"POST": _open_session}, public=frozenset({"POST"})),
    Route(f"{SESSIONS}/{{}}", _session, {"DELETE": _close_session}),
    Route(f"{ROOT}/AccountService", _account_service, {"PATCH": _set_account_service}),
    Route(ACCOUNTS, _accounts),
    Route(f"{ACCOUNTS}/{{}}", _account, {"PATCH": _set_account}),
    Route(f"{ROOT}/AccountService/Roles", _roles),
    Route(f"{ROOT}/AccountService/Roles/{{}}", _role),
    Route(CLIENT_CERTIFICATES, _authorities, {"POST": _trust}),
    Route(f"{CLIENT_CERTIFICATES}/{{}}", _authority, {"DELETE": _distrust}),
    Route(f"{ROOT}/Managers/{{}}/Truststore/Certificates", _authorities, {"POST": _trust}),
    Route(f"{ROOT}/Managers/{{}}/Truststore/Certificates/{{}}", _authority, {"DELETE": _distrust}),
    Route(f"{ROOT}/CertificateService", _certificate_service),
    Route(f"{ROOT}/CertificateService/CertificateLocations", _locations),
    Route(f"{ROOT}/CertificateService/Actions/CertificateService.GenerateCSR", None, {"POST": _generate_csr}),
    Route(
        f"{ROOT}/CertificateService/Actions/CertificateService.ReplaceCertificate", None, {"POST": _replace_certificate}
    ),
]

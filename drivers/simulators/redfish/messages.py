"""Requests and answers of Redfish without I/O, and the errors of DSP0266 with messages of DMTF's Base registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

Json = dict[str, Any]
BASE = "Base.1.19."
NO_HEADERS: Mapping[str, str] = {}


class Request(NamedTuple):
    """A request. The names of headers are in lower case. `client` is the name in a client certificate that an installed
    authority issued, and `origin` the address of the client."""

    method: str
    path: str
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes = b""
    client: str = ""
    origin: str = ""

    def json(self) -> Json:
        """The body as an object; an empty body is an empty object. Raises Refused."""
        if not self.body:
            return {}
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Refused(400, "MalformedJSON", "The request body is malformed JSON.") from error
        if not isinstance(found, dict):
            raise Refused(400, "UnrecognizedRequestBody", "The request body must be a JSON object.")
        return found


class Answer(NamedTuple):
    """An answer; without a body if it is None."""

    status: int
    body: Json | str | None = None
    headers: Mapping[str, str] = NO_HEADERS


class Refused(Exception):
    """A request that the service refuses, with a message of the Base registry."""

    def __init__(
        self, status: int, message_id: str, text: str, *args: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        super().__init__(text)
        self.answer = Answer(status, error_body(message_id, text, *args), headers)


def message(message_id: str, text: str, *args: str, severity: str = "Critical") -> Json:
    """A Message object with the arguments of its text."""
    return {
        "@odata.type": "#Message.v1_3_0.Message",
        "MessageId": message_id if "." in message_id else BASE + message_id,
        "Message": text,
        "MessageArgs": list(args),
        "MessageSeverity": severity,
        "Resolution": "None.",
    }


def error_body(message_id: str, text: str, *args: str) -> Json:
    """The body of an error response."""
    found = message(message_id, text, *args)
    return {"error": {"code": found["MessageId"], "message": text, "@Message.ExtendedInfo": [found]}}


def extended_info(*messages: Json) -> Json:
    """The body of a success that has no resource."""
    return {"@Message.ExtendedInfo": list(messages)}


SUCCESS = extended_info(message("Success", "The request completed successfully.", severity="OK"))


def etag(body: Json) -> str:
    """A strong entity tag: equal bodies have equal tags."""
    return f'"{hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]}"'


class Field(NamedTuple):
    """A property that PATCH may set. `fault` returns what is wrong with a value; empty if nothing is."""

    fault: Callable[[Any], str]
    set: Callable[[Any], None]


def attribute(of: object, name: str) -> Callable[[Any], None]:
    """Sets an attribute of the state of a BMC."""
    return partial(setattr, of, name)


def apply_patch(body: Json, fields: Mapping[str, Field]) -> None:
    """Set the properties of a body, whose fields are named by their path. Sets none if one is wrong. Raises Refused."""
    if not body:
        raise Refused(400, "MissingOrMalformedPart", "The request body has no properties.")
    changes = []
    for path, value in _leaves(body, fields):
        field = fields.get(path)
        if field is None:
            raise Refused(400, "PropertyUnknown", f"The property {path} is not in the list of valid properties.")
        if fault := field.fault(value):
            raise Refused(400, "PropertyValueIncorrect", f"The property {path} {fault}.")
        changes.append((field, value))
    for field, value in changes:
        field.set(value)


def _leaves(body: Json, fields: Mapping[str, Field], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in body.items():
        path = prefix + name
        is_parent = any(field.startswith(f"{path}/") for field in fields)
        found += _leaves(value, fields, f"{path}/") if is_parent and isinstance(value, dict) else [(path, value)]
    return found


def one_of(*allowed: str) -> Callable[[Any], str]:
    return lambda value: "" if value in allowed else f"must be one of {', '.join(allowed)}"


def boolean(value: Any) -> str:
    return "" if isinstance(value, bool) else "must be a Boolean"


def text(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a text"


def integer(value: Any) -> str:
    return "" if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "must be an integer"


def parameters(
    body: Json, needed: Mapping[str, Callable[[Any], str]], optional: Mapping[str, Any] = NO_HEADERS
) -> Json:
    """Check the parameters of an action. Raises Refused."""
    for name in needed:
        if name not in body:
            raise Refused(400, "ActionParameterMissing", f"The action requires the parameter {name}.")
    for name, value in body.items():
        check = needed.get(name) or optional.get(name)
        if check is None:
            raise Refused(400, "ActionParameterUnknown", f"The action has no parameter {name}.")
        if fault := check(value):
            raise Refused(400, "ActionParameterValueError", f"The parameter {name} {fault}.")
    return body

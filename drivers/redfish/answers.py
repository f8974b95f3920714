"""The answers of a BMC as errors of a step: one for each status and message, by the kind of failure.

A fault that passes by itself is Unreachable: the step is tried again, within its budget. A fault that only a person can
end is NeedsOperator, with a sentence that names the field or the address. Everything else is a failure of the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from drivers.backends.bmc import NeedsOperator, SessionEnded, TaskFailed, Unreachable
from eventstore.errors import PlaneError
from projections.field_checks import printable

_BUSY = frozenset((408, 429, 500, 502, 503, 504))
"""Statuses of a BMC that starts, is overloaded, or whose other services do not respond to its web server."""
_SHOWN = 200
"""Maximum number of characters of a BMC's own message in an error."""
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_Resource = TypeVar("_Resource")


class PasswordChangeRequired(NeedsOperator):
    """The account has its factory password, with which a BMC allows nothing but the change of it."""


class Unauthorized(SessionEnded):
    """The BMC does not accept the credentials of a request."""


class NotFound(TaskFailed):
    """The BMC does not have a resource or an action."""


class _Message(msgspec.Struct, frozen=True):
    id: str | None = msgspec.field(default=None, name="MessageId")
    text: str | None = msgspec.field(default=None, name="Message")


class _Error(msgspec.Struct, frozen=True):
    code: str | None = None
    message: str | None = None
    extended: list[_Message] = msgspec.field(default_factory=list, name="@Message.ExtendedInfo")


class _Body(msgspec.Struct, frozen=True):
    error: _Error | None = None
    extended: list[_Message] = msgspec.field(default_factory=list, name="@Message.ExtendedInfo")


def decoded(about: str, content: bytes, resource: type[_Resource]) -> _Resource:
    """A resource in an answer. Raises TaskFailed."""
    try:
        return msgspec.json.decode(content or b"{}", type=resource)
    except _UNREADABLE as error:
        raise TaskFailed(f"device: {about} returned an invalid resource: {error}") from error


def error_of(about: str, status: int, content: bytes) -> PlaneError | None:
    """The error that an answer stands for; None if it is none. `about` names the address and the resource."""
    if 200 <= status < 300:
        return None
    messages = list(_messages(content))
    text = _text(messages)
    said = f": {text}" if text else ""
    if any((each.id or "").endswith(".PasswordChangeRequired") for each in messages):
        return PasswordChangeRequired(f"password: {about} wants the factory password to be changed")
    if status == 401:
        return Unauthorized(f"session: {about} does not accept it (HTTP 401{said})")
    if status == 403:
        return NeedsOperator(f"user: {about} does not permit this request to the user of the plane{said}")
    if status in _BUSY or _is_in_use(messages):
        return Unreachable(f"device: {about} is busy (HTTP {status}{said})")
    if status in (404, 405, 501):
        return NotFound(f"device: {about} does not exist or cannot be used (HTTP {status}{said})")
    return TaskFailed(f"device: {about} refused the request (HTTP {status}{said})")


def wants_password_change(content: bytes) -> bool:
    """Whether an answer, which may be a success, says that the password must be changed."""
    return any((each.id or "").endswith(".PasswordChangeRequired") for each in _messages(content))


def _is_in_use(messages: list[_Message]) -> bool:
    """Whether a BMC refused a request because another operation is running. BlueField-3 answers a second update with
    status 400 and a text only."""
    in_use = (".ResourceInUse", ".UpdateInProgress", ".ServiceTemporarilyUnavailable")
    return any((each.id or "").endswith(in_use) or "in progress" in (each.text or "").lower() for each in messages)


def _messages(content: bytes) -> Iterator[_Message]:
    try:
        body = msgspec.json.decode(content, type=_Body)
    except _UNREADABLE:
        return
    yield from body.extended
    if body.error is not None:
        yield from body.error.extended
        yield _Message(body.error.code, body.error.message)


def _text(messages: list[_Message]) -> str:
    text = next((each.text for each in messages if each.text), "")
    return printable(text[:_SHOWN])

"""The session of an attempt: it fences earlier attempts, and takes care of passwords.

A real BMC knows no attempts. So each attempt logs in by itself, states its token as the context of its session, and
deletes the sessions of earlier attempts: their requests then fail, also those that are still on their way. An attempt
that finds the session of a later one ends. A BMC that keeps no context cannot tell attempts apart; there, all other
sessions of the plane's user are deleted, and an attempt of which the log has a successor must notice it by itself
(`Attempt.check`), at most one call late.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import aiohttp

from drivers.backends.bmc import NeedsOperator, SessionEnded, TaskFailed
from drivers.redfish.answers import NotFound, PasswordChangeRequired, Unauthorized, decoded, wants_password_change
from drivers.redfish.client import Answer, RedfishClient
from drivers.redfish.resources import ROOT, Link, Request, Root, Session
from projections.field_checks import quoted

_CONTEXT = re.compile(r"dpuplane/(\d{1,40})")
SESSIONS_MAX = 64
"""Maximum number of sessions that are looked at: as many as a BMC has."""

_Result = TypeVar("_Result")


class Credentials(NamedTuple):
    """How to log in to a BMC. An empty user stands for the one that the card is delivered with. The factory password is
    tried if the BMC refuses the password, which then replaces it."""

    user: str
    password: str
    factory_password: str = ""

    def __repr__(self) -> str:
        return f"Credentials({quoted(self.user)})"


class Call(Protocol):
    """Makes one call to a BMC, within the limits of its caller."""

    async def __call__(self, make: Callable[[], Awaitable[_Result]], *, alters: bool = True) -> _Result: ...


async def log_in(client: RedfishClient, root: Root, credentials: Credentials, token: int | None, call: Call) -> str:
    """Open a session for the attempt with this token, and end those of earlier ones; without a token, of none. Returns
    its path, which is empty for a BMC without sessions. Raises NeedsOperator for a wrong password, and SessionEnded."""
    service = root.session_service
    credentials = credentials._replace(user=credentials.user or ("admin" if root.is_bluefield_4 else "root"))
    if service is None or not service.path:
        client.basic = aiohttp.BasicAuth(credentials.user, credentials.password, "utf-8")
        try:
            await call(partial(client.members, root.systems), alters=False)
        except Unauthorized:  # there is no session that could have ended
            raise _refused(client, credentials) from None
        return ""
    login = _Login(client, f"{service.path.rstrip('/')}/Sessions", credentials, token, call)
    own = await login.open()
    if token is not None:
        await login.fence(own, token)
    return own


async def log_out(client: RedfishClient, own: str) -> None:
    """End the session of an attempt that has ended."""
    await client.send(Request("DELETE", own))


class _Login:
    """One login: to the collection `sessions`, for the attempt with this token."""

    def __init__(
        self, client: RedfishClient, sessions: str, credentials: Credentials, token: int | None, call: Call
    ) -> None:
        self._client = client
        self._sessions = sessions
        self._credentials = credentials
        self._token = token
        self._call = call

    async def open(self) -> str:
        """Open a session with the password. The factory password is replaced first."""
        client, (_, password, factory_password) = self._client, self._credentials
        try:
            answer, is_factory = await self._post(password), False
        except Unauthorized:
            if factory_password in ("", password):
                raise _refused(client, self._credentials) from None
            try:
                answer, is_factory = await self._post(factory_password), True
            except Unauthorized:
                raise _refused(client, self._credentials) from None
        client.token = answer.token
        if is_factory or wants_password_change(answer.content):
            await self._set_password()
            answer = await self._post(password)
            client.token = answer.token
        return answer.location

    async def fence(self, own: str, token: int) -> None:
        """End the sessions of earlier attempts."""
        found: dict[str, Session] = {}
        paths = await self._call(partial(self._client.members, Link(self._sessions)), alters=False)
        for path in list(paths)[:SESSIONS_MAX]:
            session = await self._call(partial(self._client.find, path, Session), alters=False)
            if session is not None:
                found[path] = session
        knows_contexts = _token_of(found.get(own)) == token
        others = {path: (session, _token_of(session)) for path, session in found.items() if path != own}
        if any(other is not None and other > token for _, other in others.values()):
            await self._delete(own)
            raise SessionEnded("session: a later attempt has opened one")
        for path, (session, other) in others.items():
            if other is not None or (not knows_contexts and session.user_name == self._credentials.user):
                await self._delete(path)

    async def _post(self, password: str) -> Answer:
        self._client.token = ""
        about = {"UserName": self._credentials.user, "Password": password}
        context = {} if self._token is None else {"Context": f"dpuplane/{self._token}"}
        try:
            answer = await self._send(Request("POST", self._sessions, about | context))
        except TaskFailed:  # a BMC with an earlier version of the schema refuses the context
            answer = await self._send(Request("POST", self._sessions, about))
        path = answer.location or decoded(self._client.host, answer.content, Link).path
        if not answer.token or not path:
            raise TaskFailed(f"device: {self._client.host} opened a session without its token and its path")
        return answer._replace(location=path)

    async def _set_password(self) -> None:
        """Replace the factory password. If the answer is lost, the next attempt logs in with either one."""
        user, password, _ = self._credentials
        try:
            await self._send(Request("PATCH", f"{ROOT}/AccountService/Accounts/{user}", {"Password": password}))
        except (PasswordChangeRequired, TaskFailed) as error:
            raise NeedsOperator(
                f"password: {self._client.host} does not accept the new password of user {quoted(user)}: {error}"
            ) from error

    async def _delete(self, path: str) -> None:
        try:
            await self._send(Request("DELETE", path))
        except NotFound:
            return  # it has ended meanwhile

    async def _send(self, request: Request) -> Answer:
        return await self._call(partial(self._client.send, request))


def _refused(client: RedfishClient, credentials: Credentials) -> NeedsOperator:
    return NeedsOperator(
        f"password: {client.host} refuses the password of user {quoted(credentials.user)}; correct it in the Secret or "
        "the file that the plane has it from"
    )


def _token_of(session: Session | None) -> int | None:
    found = _CONTEXT.fullmatch((session and session.context) or "")
    return int(found[1]) if found is not None else None

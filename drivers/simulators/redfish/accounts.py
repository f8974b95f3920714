"""Accounts and sessions of a BMC: initial passwords that must be changed, lock-out, and tokens of sessions."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from drivers.simulators.redfish.messages import Refused, Request

FACTORY_PASSWORD = "0penBmc"
PASSWORD_LENGTH_MIN = 12
PASSWORD_LENGTH_MAX = 64
LOCKOUT_FAILURES = 10
SESSIONS_MAX = 64


@dataclass
class Account:
    """A user. A user with a password of the factory can only change it."""

    name: str
    password: str = FACTORY_PASSWORD
    must_change: bool = True
    failures: int = 0
    locked_until: datetime | None = None


@dataclass
class Session:
    """A session. `context` is a text of its client."""

    id: str
    token: str
    user: str
    context: str
    origin: str
    created: datetime
    used: datetime


@dataclass(frozen=True)
class Caller:
    """The authenticated sender of a request."""

    account: Account
    session: Session | None = None


@dataclass
class Accounts:
    """Accounts by name and sessions by id. A session ends when it is deleted or long unused, or by a restart."""

    now: Callable[[], datetime]
    rng: Random
    users: dict[str, Account]
    session_timeout: timedelta = timedelta(minutes=30)
    lockout: timedelta = timedelta(minutes=10)
    lockout_failures: int = LOCKOUT_FAILURES
    """Wrong passwords that lock an account; 0 never does."""
    sessions: dict[str, Session] = field(default_factory=dict)
    accepts_certificates: bool = False
    accepts_basic: bool = True

    def check(self, user: str, password: str) -> Account:
        """The account with this password. Raises Refused, and locks an account after many failures."""
        account, now = self.users.get(user), self.now()
        if account is None or (account.locked_until is not None and now < account.locked_until):
            raise unauthorized()
        if not hmac.compare_digest(_bytes(account.password), _bytes(password)):
            account.failures += 1
            if 0 < self.lockout_failures <= account.failures:
                account.failures, account.locked_until = 0, now + self.lockout
            raise unauthorized()
        account.failures, account.locked_until = 0, None
        return account

    def open(self, user: str, password: str, *, context: str, origin: str) -> Session:
        """Open a session. Raises Refused."""
        account = self.check(user, password)
        self._expire()
        if len(self.sessions) >= SESSIONS_MAX:
            raise Refused(503, "SessionLimitExceeded", "The session could not be opened: too many sessions are open.")
        now = self.now()
        session = Session(
            f"{self.rng.getrandbits(40):010x}",
            f"{self.rng.getrandbits(160):040x}",
            account.name,
            context,
            origin,
            now,
            now,
        )
        self.sessions[session.id] = session
        return session

    def caller(self, request: Request) -> Caller | None:
        """The sender of a request; None if it has no credentials. Raises Refused for wrong ones."""
        self._expire()
        if token := request.headers.get("x-auth-token"):
            for session in self.sessions.values():
                if hmac.compare_digest(_bytes(session.token), _bytes(token)):
                    session.used = self.now()
                    return Caller(self.users[session.user], session)
            raise unauthorized()
        if (header := request.headers.get("authorization", "")).lower().startswith("basic ") and self.accepts_basic:
            user, password = _basic(header)
            return Caller(self.check(user, password))
        if self.accepts_certificates and request.client in self.users:
            return Caller(self.users[request.client])
        return None

    def set_password(self, account: Account, password: str) -> None:
        """Change a password, as a change required by the factory demands."""
        account.password, account.must_change = password, False
        for session in [each for each in self.sessions.values() if each.user == account.name]:
            session.used = self.now()

    def fault_of(self, account: Account, password: object) -> str:
        """What is wrong with a new password; empty if nothing is."""
        if not isinstance(password, str) or not PASSWORD_LENGTH_MIN <= len(password) <= PASSWORD_LENGTH_MAX:
            return f"must be a text of {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters"
        return "must differ from the present password" if password == account.password else ""

    def _expire(self) -> None:
        ended = self.now() - self.session_timeout
        self.sessions = {each.id: each for each in self.sessions.values() if each.used > ended}


def unauthorized() -> Refused:
    """The refusal of a request without valid credentials."""
    headers: Mapping[str, str] = {"WWW-Authenticate": 'Basic realm="BMC"'}
    return Refused(401, "NoValidSession", "There is no valid session established.", headers=headers)


def _bytes(text: str) -> bytes:
    """The bytes of a text, which JSON may fill with lone surrogates."""
    return text.encode(errors="surrogatepass")


def _basic(header: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(header.split(" ", 1)[1], validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise unauthorized() from error
    return user, password

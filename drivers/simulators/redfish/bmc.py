"""A BMC of a BlueField: the state of its card and the Redfish service that shows and changes it, without I/O.

`handle` answers a request at the present time of its clock. Transfers of images are requests of `card.fetches`, which
the server of the BMC runs. Faults are planned in `faults` and `card.outcomes`, or drawn by a seed.

What is served follows DMTF's schemas and those of NVIDIA, but for two habits of real BMCs that clients rely on and the
schemas do not allow: actions of the resources `Oem/Nvidia`, which are served and not advertised, and the collection
`Truststore/Certificates` of the manager, which is linked from the account service instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from drivers.simulators.redfish import account_resources, manager_resources, system_resources, update_resources
from drivers.simulators.redfish.accounts import Account, Accounts, Caller, unauthorized
from drivers.simulators.redfish.card import QUICK_DURATIONS, Card, Durations
from drivers.simulators.redfish.certificates import BmcCertificates
from drivers.simulators.redfish.faults import NO_SHARES, Outcomes, RequestFaults, Shares
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.messages import Answer, Json, Refused, Request, etag
from drivers.simulators.redfish.metadata import metadata
from drivers.simulators.redfish.routes import Call, Routes, missing
from drivers.simulators.redfish.tasks import Tasks

ROUTES = (
    *account_resources.ROUTES,
    *manager_resources.ROUTES,
    *system_resources.ROUTES,
    *update_resources.ROUTES,
)
_TABLE = Routes(ROUTES)

METADATA = "/redfish/v1/$metadata"
REQUESTS_MAX = 10_000


class RedfishBmc:
    """The BMC. `restarts` counts its restarts, and `requests` keeps the method and path of the last requests."""

    def __init__(
        self,
        identity: Identity,
        *,
        now: Callable[[], datetime],
        rng: Random,
        durations: Durations = QUICK_DURATIONS,
        shares: Shares = NO_SHARES,
        hosts: tuple[str, ...] = ("127.0.0.1", "::1", "localhost"),
    ) -> None:
        self.identity = identity
        self.now = now
        self.faults = RequestFaults(rng, shares)
        self.card = Card(identity, now, rng, durations, Outcomes(rng, shares), Outcomes(rng, shares))
        user = identity.generation.user
        self.accounts = Accounts(now, rng, {user: Account(user)})
        self.tasks = Tasks()
        self.certificates = BmcCertificates(now, hosts)
        self.requests: deque[tuple[str, str]] = deque(maxlen=REQUESTS_MAX)
        self.restarts = 0
        self._up_at = now()

    @property
    def is_up(self) -> bool:
        """Whether the BMC answers; it does not while it restarts."""
        return self.now() >= self._up_at

    def handle(self, request: Request) -> Answer:
        """Answer a request."""
        self.requests.append((request.method, request.path))
        request = request._replace(path=request.path.rstrip("/") or "/")
        self.card.settle()
        if request.path == METADATA and request.method in ("GET", "HEAD"):
            return Answer(200, metadata(self._shown))
        try:
            route, names = _TABLE.find(request.path)
            if not self.identity.has(request.path):
                raise missing(request.path)
            call = Call(self, request, names, self._caller(request, route.public))
            if request.method in ("GET", "HEAD") and route.read is not None:
                body = route.read(call)
                if body is None:
                    raise missing(request.path)
                headers = {"Allow": ", ".join(route.methods), "ETag": etag(body)}
                return Answer(200, body, headers)
            handler = route.handlers.get(request.method)
            if handler is None:
                text = f"The {request.method} method is not allowed on {request.path}."
                raise Refused(405, "OperationNotAllowed", text, headers={"Allow": ", ".join(route.methods)})
            if route.read is not None and (wanted := request.headers.get("if-match", "*")) != "*":
                body = route.read(call)
                if body is not None and etag(body) not in wanted:
                    raise Refused(412, "PreconditionFailed", "The ETag supplied did not match that of the resource.")
            return handler(call)
        except Refused as refused:
            return refused.answer

    def _caller(self, request: Request, public: frozenset[str]) -> Caller | None:
        """Authenticate and authorize a request: a user whose password must change may only do that. Raises Refused."""
        if request.method in public:
            return None
        caller = self.accounts.caller(request)
        if caller is None:
            raise unauthorized()
        own = f"/redfish/v1/AccountService/Accounts/{caller.account.name}"
        is_own_session = request.method == "DELETE" and "/SessionService/Sessions/" in request.path
        if caller.account.must_change and request.path != own and not is_own_session:
            text = "The password provided for this account must be changed before access is granted."
            raise Refused(403, "PasswordChangeRequired", f"{text} PATCH {own} with a new Password.", own)
        return caller

    def _shown(self, path: str) -> Json | None:
        """The resource at a path as a user with all rights sees it; None if there is none."""
        try:
            route, names = _TABLE.find(path.rstrip("/"))
        except Refused:
            return None
        return route.read(Call(self, Request("GET", path), names, None)) if route.read is not None else None

    def restart(self) -> None:
        """Restart the BMC: it is away for a while, and forgets its sessions and tasks."""
        self.restarts += 1
        self.card.restart_bmc()
        self.tasks.restart()
        self.accounts.sessions.clear()
        self._up_at = self.now() + timedelta(seconds=self.card.durations.bmc_restart_s)

    def lose_power(self) -> None:
        """Cut the power of the card, and of the BMC with it, for a moment."""
        self.card.lose_power()
        self.restart()

    def reset_to_defaults(self) -> None:
        """What the factory delivered: passwords, certificates and settings."""
        self.accounts.users = {name: Account(name) for name in self.accounts.users}
        self.certificates.authorities.clear()
        self.accounts.accepts_certificates = False
        self.certificates.sign_self(timedelta(days=365))
        self.card.host_rshim = self.card.bmc_rshim = True
        self.restart()

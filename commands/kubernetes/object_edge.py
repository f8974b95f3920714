"""Appends the specs of RulePolicy and DPURack objects, and the verdicts in Hold objects, of one source cluster.

Each spec is submitted once, and its digest is stored in the status of the object. Fleet decides whether it takes
effect: an edit over its budget waits for approval, and is not submitted again. If another command changes the policy
afterwards, the change stays, and the status of the object shows it. A new value of the annotation `dpuplane.io/restate`
submits an unchanged spec again. A difference between a spec and fleet is no reason to submit the spec again. Otherwise,
the edge would revert the changes of other commands, repeat each rejected edit, and apply old specs after the restore of
a backup.

The deletion of an object submits nothing, so neither a watched deletion nor a list without the object can remove rules.

A verdict in a Hold object is appended as an approval or rejection by the principal of the verdict's user (see `users`).
The fold decides whether the verdict counts. The admission policies guarantee that a spec or verdict names the user who
wrote it. While they are not in force, the edge submits no spec and no verdict.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple

from msgspec.structs import replace
from pydantic import ValidationError

from commands.fold_versions import FoldVersions
from commands.kubernetes.admission_check import missing_policy
from commands.kubernetes.object_facts import (
    ADMISSION_MISSING,
    digest_in_status,
    digest_of,
    event_of,
    is_not_accepted,
    is_unvouched,
)
from commands.kubernetes.object_plan import SpecEvent, VerdictEvent, is_in_fleet, verdicts
from commands.kubernetes.users import AUTHOR_FIELD, UserNames
from commands.rpc.errors import PreconditionFailed
from eventstore.errors import FatalError, PlaneError, TransientError
from eventstore.folding.fold import Outcome
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET, FLEET_0
from eventstore.reasons import CLOCK_REASONS, Reason
from eventstore.replicas.replica import Replica
from projections.fleet.fold import FleetFold2
from projections.fold_states import FoldStates
from projections.kubernetes.object_cache import ObjectCache, named_objects
from projections.kubernetes.object_events import ObjectEvent, Regarding, Report, ignore
from projections.kubernetes.object_names import hold_number
from projections.kubernetes.statements import Statement, StatementTable
from projections.kubernetes.status_body import shortened
from schemas.events import Envelope, PolicyStaged
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.kubernetes.objects import Custom
from schemas.resources import KINDS
from schemas.resources.author_admission import AUTHOR, RESTATE
from schemas.resources.hold import HOLD, HoldSpec
from schemas.resources.kinds import Kind

logger = logging.getLogger(__name__)

LINGER_S = 0.05
SUBMIT_TIMEOUT_S = 10.0
CONCURRENT = 16
"""Maximum number of objects that are compared at the same time."""
RETRY_S = 1.0
CHECK_S = 60.0
"""Time after which the admission policies are read again, and objects that were not accepted are compared again."""
MAX_REFUSED = 1_000
"""Maximum number of remembered refused verdicts. At this limit all are forgotten, and the edge may submit them
again."""
_LOGGED = frozenset((1, 10, 100, 1_000, 10_000))
"""Values of `_unread` at which a warning is logged: a server may be away for hours."""
NEEDS_APPROVAL = "NeedsApproval"
"""The reason of the condition of a spec whose change is held."""


class _Key(NamedTuple):
    kind: Kind
    name: str


class ObjectEdge:
    """Appends what the log lacks of the objects of one source cluster, while `run` runs. List-watches fill the
    caches."""

    def __init__(
        self,
        replica: Replica,
        source: str,
        api: KubernetesApi,
        users: UserNames,
        statements: StatementTable,
        *,
        versions: FoldVersions,
        now_ms: Callable[[], int],
        rng: Random,
        report: Report = ignore,
    ) -> None:
        self.caches: Mapping[Kind, ObjectCache[Custom]] = {kind: named_objects() for kind in KINDS}
        self.stated: Counter[tuple[str, str]] = Counter()
        """Number of submitted specs and verdicts that fleet has decided on, by the kind's plural and the result."""
        self.missing_admission = "the admission policies are not read yet"
        """The admission policy that is not in force, in one sentence; empty if all are."""
        self._replica = replica
        self._states = FoldStates(replica)
        self._source = source
        self._api = api
        self._users = users
        self._statements = statements
        self._versions = versions
        self._now_ms = now_ms
        self._rng = rng
        self._report = report
        self._checked_s = -CHECK_S
        self._unread = 0
        """Consecutive failures to read the admission policies."""
        self._dirty: set[_Key] = set()
        self._suspended: dict[_Key, str] = {}
        """Digests of the specs that were listed by an API server after its restore from a backup. These specs may be
        older than the values in fleet."""
        self._refused: dict[tuple[str, str, str, str], str] = {}
        """Reasons of refused verdicts, by hold, user, verdict and hash."""
        self._unvouched: dict[_Key, set[tuple[str, str, str]]] = {}
        """Verdicts, by user, verdict and hash, that were written while an admission policy was missing."""
        self._unconfirmed: dict[_Key, tuple[str, SpecEvent]] = {}
        """Commands whose outcome is not known, with the digest of their spec. A repetition of such a command has the
        same id, so the fold does not apply it twice: it answers with the first outcome, and later changes by other
        commands stay."""
        self._slots = asyncio.Semaphore(CONCURRENT)
        self._work = asyncio.Event()
        for kind, cache in self.caches.items():
            self._subscribe(kind, cache)

    def not_accepted(self, kind: Kind) -> int:
        """Number of objects of a kind whose spec was not accepted, or with verdicts that were not accepted."""
        return sum(is_not_accepted(item) for item in self.caches[kind].objects.values())

    def _subscribe(self, kind: Kind, cache: ObjectCache[Custom]) -> None:
        cache.subscribe(lambda item: self._mark(_Key(kind, item.metadata.name)), lambda: self._on_list(kind, cache))

    def _mark(self, key: _Key) -> None:
        self._dirty.add(key)
        self._work.set()

    def _on_list(self, kind: Kind, cache: ObjectCache[Custom]) -> None:
        if cache.went_back:
            cache.went_back = False
            for name, item in cache.objects.items():
                with suppress(ValidationError):  # an invalid spec is never submitted
                    self._suspended[_Key(kind, name)] = digest_of(kind, item)
        self._work.set()

    # -- the reconciler

    async def run(self) -> None:
        """Append differences until cancelled."""
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_fleet())
            tasks.create_task(self._repeat())
            while True:
                await self._work.wait()
                await asyncio.sleep(LINGER_S)
                self._work.clear()
                if not await self._reconcile():
                    await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
                    self._work.set()

    async def _follow_fleet(self) -> None:
        """Compare holds with verdicts again when fleet changes: a change that grew has another hash."""
        with self._replica.watch(FLEET) as watch:
            while True:
                await watch.changed()
                for name, item in self.caches[HOLD].objects.items():
                    if b'"verdicts"' in bytes(item.spec):
                        self._mark(_Key(HOLD, name))

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S * self._rng.uniform(0.8, 1.2))
            self._mark_all()

    def _mark_all(self) -> None:
        self._dirty.update(_Key(kind, name) for kind, cache in self.caches.items() for name in cache.objects)
        self._work.set()

    async def _reconcile(self) -> bool:
        """Append what fleet lacks of the changed objects. Returns whether nothing is left to append."""
        ready = {key for key in self._dirty if self.caches[key.kind].is_complete}
        if not ready:
            return True
        if not await self._check_admission():
            return False
        self._dirty -= ready
        failed: set[_Key] = set()

        async def compare(key: _Key) -> None:
            async with self._slots:
                if not await self._compare(key):
                    failed.add(key)

        async with asyncio.TaskGroup() as tasks:
            for key in sorted(ready, key=lambda key: (key.kind.plural, key.name)):
                tasks.create_task(compare(key))
        self._dirty |= failed
        return not failed

    async def _check_admission(self) -> bool:
        """Read the admission policies, unless that was done lately. Returns False if they could not be read."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._checked_s + CHECK_S * 0.5:
            return True
        try:
            missing = await missing_policy(self._api)
        except ApiError as error:
            self._unread += 1
            if self._unread in _LOGGED:
                logger.warning("admission policies not read, retrying: %s", error, extra={"source": self._source})
            return False
        self._unread = 0
        if missing and missing != self.missing_admission:
            logger.warning("specs and verdicts are not submitted: %s", missing, extra={"source": self._source})
        self._checked_s, self.missing_admission = now_s, missing
        return True

    async def _compare(self, key: _Key) -> bool:
        """Append what fleet lacks of one object. Returns whether every record is known to be folded."""
        item = self.caches[key.kind].objects.get(key.name)
        if item is None or item.metadata.deletion_timestamp is not None:
            self._statements.forget(key.kind.plural, key.name)
            self._suspended.pop(key, None)
            self._unconfirmed.pop(key, None)
            self._unvouched.pop(key, None)
            return True
        try:
            if key.kind is HOLD:
                return await self._compare_hold(key, item, HoldSpec.model_validate_json(bytes(item.spec)))
            return await self._compare_spec(key, item)
        except ValidationError as error:  # an earlier resource definition admitted the spec
            first = error.errors()[0]
            field = ".".join(("spec", *map(str, first["loc"])))
            self._say(key, item, "Invalid", f"{field}: {first['msg']}")
            return True

    # -- specs of racks and policies

    async def _compare_spec(self, key: _Key, item: Custom) -> bool:
        digest = digest_of(key.kind, item)
        if not digest:
            self._statements.forget(key.kind.plural, key.name)
            return True
        known = self._statements.get(key.kind.plural, key.name)
        if digest_in_status(item) == digest:
            self._statements.forget(key.kind.plural, key.name)
            return True
        if known is not None and known.stated == digest:
            return True
        unconfirmed = self._unconfirmed.get(key)
        if unconfirmed is not None and unconfirmed[0] == digest:
            return await self._submit_spec(key, item, unconfirmed[1], digest)
        event = event_of(key.kind, item, self._envelope(""))
        assert event is not None, "a spec that sets no value has no digest"
        if is_in_fleet(self._states.fleet, event):
            self._say(key, item, "Accepted", "the plane has this spec already", digest, is_accepted=True)
            return True
        user = (item.metadata.annotations or {}).get(AUTHOR, "")
        actor = self._users.author(user)
        if self.missing_admission:  # final for this spec: a later policy does not prove its author
            message = f"{self.missing_admission}; then set the annotation {RESTATE} to a new value"
            self._say(key, item, ADMISSION_MISSING, message, digest)
        elif self._suspended.get(key) == digest:
            message = "the API server was restored from a backup; change the spec, or set the annotation"
            self._say(key, item, "RestoredFromBackup", f"{message} {RESTATE} to a new value, to submit it")
        elif actor is None:
            self._say(key, item, "AuthorUnknown", self._users.fault(AUTHOR_FIELD, user))
        else:
            command = replace(event, envelope=replace(event.envelope, actor=actor))
            return await self._submit_spec(key, item, command, digest)
        return True

    async def _submit_spec(self, key: _Key, item: Custom, event: SpecEvent, digest: str) -> bool:
        """Append the spec of an object. Returns whether the record is known to be folded."""
        if isinstance(event, PolicyStaged):
            try:
                await self._versions.ensure(FLEET_0, FleetFold2.version, event.envelope.actor, SUBMIT_TIMEOUT_S)
            except PreconditionFailed as error:
                self._say(key, item, "Waiting", str(error))
                return True
            except TransientError as error:
                logger.warning("fold not upgraded, retrying: %s", error, extra={"source": self._source})
                return False
        self._unconfirmed[key] = (digest, event)
        outcome = await self._submit(event, key.name)
        if outcome is None:
            return False
        del self._unconfirmed[key]
        if outcome.reason_code in CLOCK_REASONS:
            return False
        taken = f"the plane has taken this spec of {event.envelope.actor}"
        is_refused = outcome.code == "refused"
        self.stated[key.kind.plural, "refused" if is_refused else "accepted"] += 1
        if outcome.reason_code == Reason.POLICY_STAGED:  # it ends, so the spec is compared again
            self._say(key, item, "Waiting", outcome.reason)
        elif is_refused:
            self._say(key, item, "Refused", outcome.reason, digest)
        elif outcome.code == "held":
            message = f"{taken}; its change needs approval: hold {outcome.result['hold']}"
            self._say(key, item, NEEDS_APPROVAL, message, digest, is_accepted=True)
        else:
            self._say(key, item, "Accepted", taken, digest, is_accepted=True)
        return True

    def _say(
        self, key: _Key, item: Custom, reason: str, message: str, digest: str = "", *, is_accepted: bool = False
    ) -> None:
        statement = Statement(item.metadata.generation, digest, is_accepted, reason, message)
        is_new = self._statements.get(key.kind.plural, key.name) != statement
        if is_new and (not is_accepted or reason == NEEDS_APPROVAL):
            about = Regarding(key.kind.api_version, key.kind.name, key.name, item.metadata.uid)
            self._report(ObjectEvent(about, reason, message))
        self._statements.put(key.kind.plural, key.name, statement)

    # -- verdicts on holds

    async def _compare_hold(self, key: _Key, item: Custom, spec: HoldSpec) -> bool:
        number = hold_number(key.name)
        given: set[tuple[str, str, str]] = {(each.user, each.verdict, each.hash) for each in spec.verdicts}
        unvouched = given if self.missing_admission or is_unvouched(item) else self._unvouched.get(key, set()) & given
        self._unvouched[key] = unvouched
        if number is None or not given:
            return True
        if unvouched:
            users = ", ".join(sorted(f"spec.verdicts[{user}]" for user, _, _ in unvouched))
            why = self.missing_admission or "an admission policy was missing when it was stated"
            self._say(key, item, ADMISSION_MISSING, f"{users}: {why}; remove each such verdict, and state it again")
            if unvouched == given:
                return True
            vouched = [each for each in spec.verdicts if (each.user, each.verdict, each.hash) not in unvouched]
            spec = spec.model_copy(update={"verdicts": vouched})
        faults: dict[str, str] = {}
        for _ in spec.verdicts:  # each appended verdict may change which of the others count
            judged = verdicts(number, spec, self._states.fleet, self._users, self._envelope)
            if not judged:
                return True
            refused = self._refused
            faults = {each.verdict.user: each.fault for each in judged if each.fault}
            known = {each.verdict.user: refused.get((key.name, *each.verdict.model_dump().values())) for each in judged}
            faults |= {user: reason for user, reason in known.items() if reason}
            event = next((each for each in judged if each.event is not None and each.verdict.user not in faults), None)
            if event is None or event.event is None:
                break
            outcome = await self._submit(event.event, key.name)
            if outcome is None or outcome.reason_code in CLOCK_REASONS:
                return False
            self.stated[HOLD.plural, "refused" if outcome.code == "refused" else "accepted"] += 1
            if outcome.code == "refused":
                if len(refused) >= MAX_REFUSED:
                    refused.clear()
                faults[event.verdict.user] = outcome.reason
                refused[(key.name, *event.verdict.model_dump().values())] = outcome.reason
        if unvouched:
            return True
        if faults:
            self._say(key, item, "VerdictRefused", "; ".join(faults.values()))
        else:
            self._say(key, item, "Counted", "every verdict counts", is_accepted=True)
        return True

    # -- the log

    async def _submit(self, event: SpecEvent | VerdictEvent, name: str) -> Outcome | None:
        """Submit a record; None if its outcome is not known."""
        about = {"source": self._source, "object": name, "event": type(event).__name__, "actor": event.envelope.actor}
        try:
            key = event.envelope.subject.encode()
            answer = await self._replica.submit(FLEET_0, key, event, timeout_s=SUBMIT_TIMEOUT_S)
        except FatalError:
            raise
        except PlaneError as error:
            logger.warning("event about an object not confirmed, retrying: %s", error, extra=about)
            return None
        outcome = answer.outcome
        logger.info(
            "spec or verdict submitted: %s", outcome.code, extra=about | {"reason": shortened(outcome.reason, 200)}
        )
        return outcome

    def _envelope(self, actor: str, subject: str = "") -> Envelope:
        return envelope(subject, actor, uuid7(self._now_ms(), self._rng))

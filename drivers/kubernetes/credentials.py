"""Tokens of DPUServiceCredentialRequests: requested in their target clusters, and written as Secrets of the source
cluster, where services read them.

A token goes from one API server to the other only: neither the log nor a message has it. The log gets when it
was issued and until when it is valid, so a restart renews nothing. Replicas take turns by rank; two tokens for one
request do no harm. A failed request is tried again with growing pauses, and a token that is still valid stays.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

from drivers.internal_events import InternalEvents
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from drivers.kubernetes.secret_kubeconfig import ClusterAccess, SecretMissing, read_secret_access
from drivers.kubernetes.token_secrets import token_secret
from eventstore.backoff import backoff_ceiling
from eventstore.ids import internal_envelope
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import KUBERNETES
from projections.resources.change_journal import ChangeJournal
from projections.resources.control_planes.specs import DPUClusterSpec, kubeconfig_name
from projections.resources.kinds import DPU_SERVICE_CREDENTIAL_REQUEST
from projections.resources.service_specs import CredentialRequestSpec
from projections.resources.services.tokens import (
    TokenKnown,
    TokenWish,
    failure_of,
    observation_of,
    renewal_ms,
    time_ms,
    token_known,
    token_wish,
)
from projections.resources.specs import JSON, read
from projections.resources.state import ResourcesState, object_id
from schemas.events import ResourcesObserved
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.resources.dpf.credentials import REQUEST_NAME, REQUEST_NAMESPACE

logger = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_S_MAX = 60.0
MISSING_S_MAX = 4.0
"""Longest pause while something is missing that another part of the plane makes, such as the ServiceAccount."""
IDLE_S_MAX = 3_600.0
"""Longest sleep until the next look at the clock."""
FIELD_MANAGER = "dpuplane-credentials"
_APPLY = {"fieldManager": FIELD_MANAGER, "force": "true"}
_OWN_CLUSTER = "incluster"
"""DPF's name of the cluster of the hosts in kubeconfigs."""


class Connections(Protocol):
    """The API servers of a source cluster and of its DPU clusters."""

    def api(self, source: str) -> KubernetesApi | None: ...

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]: ...


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    expiration_timestamp: str = ""


class _TokenSpec(msgspec.Struct, frozen=True, rename="camel"):
    expiration_seconds: int = 3_600


class _TokenRequest(msgspec.Struct, frozen=True):
    """authentication.k8s.io/v1 TokenRequest."""

    spec: _TokenSpec = _TokenSpec()
    status: _Status = _Status()


class _Pause(NamedTuple):
    """The time before which a token of this version is not requested."""

    version: str
    failures: int
    until_s: float


class _Unreported(NamedTuple):
    before: JSON
    observation: JSON


class _NotYet(Exception):
    """A token cannot be written now, in one sentence without anything secret."""


_token_request = msgspec.json.Decoder(_TokenRequest)


class CredentialDriver:
    """Writes and renews the tokens of one source cluster while `run` runs."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        source: str,
        *,
        connections: Connections,
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self.written = 0
        self.internal_events = InternalEvents(replica, ranks, KUBERNETES)
        self._replica = replica
        self._source = source
        self._connections = connections
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"credentials/{replica.name}"
        self._pauses: dict[str, _Pause] = {}
        self._unreported: dict[str, _Unreported] = {}
        """Written tokens that the fold does not show yet."""
        self._requests: dict[str, None] = {}
        """The requests that exist or are observed."""
        self._journal: ChangeJournal | None = None
        self._revision = 0
        self._work = asyncio.Event()

    @property
    def _partition(self) -> Partition:
        return self._replica.partition_for(RESOURCES, self._source)

    @property
    def _state(self) -> ResourcesState:
        found: ResourcesState = self._replica.folded(self._partition).state
        return found

    async def run(self) -> None:
        """Follow the requests until cancelled."""
        await self._replica.ready()
        unsubscribe = self._connections.subscribe(self._on_connections)
        try:
            with self._replica.watch(RESOURCES) as watch:
                while True:
                    self._work.clear()
                    pause_s = await self._pass()
                    await self._wait(watch.changed, pause_s)
        finally:
            unsubscribe()

    def _on_connections(self) -> None:
        self._pauses = {key: pause for key, pause in self._pauses.items() if not pause.failures}
        self._work.set()

    async def _wait(self, changed: Callable[[], Any], pause_s: float) -> None:
        """Wait for a change of the fold or of the connections, at most this long."""
        waits = [asyncio.ensure_future(changed()), asyncio.ensure_future(self._work.wait())]
        try:
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)

    async def _pass(self) -> float:
        """Write what is due. Returns the seconds until the next token is."""
        pause_s = IDLE_S_MAX
        self._take_changes()
        for key in sorted(self._requests):
            pause_s = min(pause_s, await self._look_after(key))
        return pause_s

    def _take_changes(self) -> None:
        """Learn of requests that came or went."""
        state = self._state
        changed = state.journal.since(self._revision) if state.journal is self._journal else None
        if changed is None:
            self._requests = {}
            changed = [*state.of_kind(self._source, DPU_SERVICE_CREDENTIAL_REQUEST), *state.seen]
        self._journal, self._revision = state.journal, state.journal.revision
        prefix = f"{self._source}/{DPU_SERVICE_CREDENTIAL_REQUEST}/"
        for key in changed:
            if key.startswith(prefix):
                self._requests[key] = None
        for key in [key for key in self._requests if key not in state.objects.rows and key not in state.seen]:
            del self._requests[key]
            self._pauses.pop(key, None)

    async def _look_after(self, key: str) -> float:
        """Write the token of a request if it is due. Returns the seconds until it is."""
        now_s = asyncio.get_running_loop().time()
        row, known = self._state.objects.rows.get(key), self._known(key)
        if row is None or row.deleted_ms:
            return await self._retire(key, known)
        spec = read(CredentialRequestSpec, row)
        if isinstance(spec, str):
            return IDLE_S_MAX
        if key in self._unreported:
            return await self._report(key, known)
        wish = token_wish(object_id(key), spec)
        pause_s = (renewal_ms(wish, known) - self._now_ms()) / 1_000
        if pause_s > 0:
            return pause_s
        pause = self._pauses.get(key)
        if pause is not None and pause.version == wish.version and pause.until_s > now_s:
            return pause.until_s - now_s
        if await self._is_done_by_another(key, known):
            return 0.0
        try:
            observation = await self._write(wish, known)
        except (ApiError, KubeconfigInvalid, _NotYet, ValueError, KeyError, TypeError, IndexError) as error:
            return await self._fail(wish, known, error)
        self._pauses[key] = _Pause(wish.version, 0, now_s + _life_s(observation) / 2)
        self.written += 1
        self._unreported[key] = _Unreported(known.text, observation)
        await self._observe(key, observation)
        logger.info("token written", extra={"request": key, "expires": observation.get("expirationTimestamp")})
        return RETRY_S

    async def _report(self, key: str, known: TokenKnown) -> float:
        """Report a written token until the fold shows it: no other token is requested meanwhile."""
        found = self._unreported[key]
        if known.text == found.observation or known.text != found.before:
            del self._unreported[key]
            return 0.0
        await self._observe(key, found.observation)
        return RETRY_S

    async def _is_done_by_another(self, key: str, known: TokenKnown) -> bool:
        def is_met() -> bool:
            return self._known(key).text != known.text

        return await self.internal_events.wait_for_turn(key, self._partition, is_met)

    async def _fail(self, wish: TokenWish, known: TokenKnown, error: Exception) -> float:
        before = self._pauses.get(wish.key)
        failures = before.failures + 1 if before is not None and before.version == wish.version else 1
        longest_s = MISSING_S_MAX if isinstance(error, _NotYet) else RETRY_S_MAX
        pause_s = backoff_ceiling(failures - 1, RETRY_S, longest_s) * self._rng.uniform(0.5, 1.0)
        self._pauses[wish.key] = _Pause(wish.version, failures, asyncio.get_running_loop().time() + pause_s)
        message = _sentence(error)
        logger.warning("token not written, retrying: %s", message, extra={"request": wish.key})
        observation = failure_of(known, message, self._now_ms())
        if observation != known.text:
            await self._observe(wish.key, observation)
        return pause_s

    def _known(self, key: str) -> TokenKnown:
        seen = self._state.seen.get(key)
        return token_known(None if seen is None else seen.fields)

    # -- API servers

    async def _write(self, wish: TokenWish, known: TokenKnown) -> JSON:
        """Request a token, write its Secret, and delete the Secret that it replaces."""
        target, own = self._connections.api(wish.source), self._connections.api(self._source)
        if own is None or target is None:
            raise _NotYet("its cluster is not connected" if target is None else "the source cluster is not connected")
        access = await self._access(wish, own)
        namespace, account = wish.account
        spec = {} if wish.seconds is None else {"expirationSeconds": wish.seconds}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        try:
            found = _token_request.decode(await target.create(path, body))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            raise _NotYet(f"ServiceAccount {namespace}/{account} does not exist yet") from None
        expires_ms = time_ms(found.status.expiration_timestamp)
        if not found.status.token or not expires_ms:
            raise _NotYet("the API server has answered without a token")
        space, name = wish.secret
        path = f"/api/v1/namespaces/{space}/secrets/{name}"
        await own.patch(path, token_secret(wish, access, found.status.token), "apply", _APPLY)
        if known.secret not in ("", "/".join(wish.secret)):
            await self._delete_secret(own, wish.key, known.secret)
        return observation_of(wish, expires_ms - found.spec.expiration_seconds * 1_000, expires_ms)

    async def _access(self, wish: TokenWish, own: KubernetesApi) -> ClusterAccess:
        """The address and the authority of the cluster that a token is for."""
        if wish.cluster is None:
            return await _own_access(own, wish.account[0])
        row = self._state.objects.rows.get(wish.cluster)
        spec = read(DPUClusterSpec, row) if row is not None else "the DPUCluster does not exist"
        at = object_id(wish.cluster)
        name = "" if isinstance(spec, str) else kubeconfig_name(at.name, spec)
        if not name:
            raise _NotYet(spec if isinstance(spec, str) else "the DPUCluster names no kubeconfig")
        try:
            return await read_secret_access(own, at.namespace, name)
        except SecretMissing:
            raise _NotYet(f"Secret {at.namespace}/{name} does not exist yet") from None

    async def _retire(self, key: str, known: TokenKnown) -> float:
        """Delete the Secret of a request that is gone, and what is observed of it."""
        if key not in self._state.seen:
            return IDLE_S_MAX
        own = self._connections.api(self._source)
        if own is None:
            return IDLE_S_MAX  # a new connection wakes the driver
        if await self._is_done_by_another(key, known):
            return IDLE_S_MAX
        try:
            if known.secret:
                await self._delete_secret(own, key, known.secret)
        except ApiError as error:
            logger.warning("secret of a request not deleted, retrying: %s", _sentence(error), extra={"request": key})
            return RETRY_S
        await self._observe(key, None)
        return RETRY_S

    async def _delete_secret(self, own: KubernetesApi, key: str, secret: str) -> None:
        """Delete a Secret that was written for a request, unless it has become somebody else's."""
        namespace, _, name = secret.partition("/")
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        at = object_id(key)
        try:
            metadata = json.loads(await own.get(path))["metadata"]
            labels = metadata.get("labels") or {}
            if (labels.get(REQUEST_NAMESPACE), labels.get(REQUEST_NAME)) == (at.namespace, at.name):
                await own.delete(path, uid=metadata["uid"])
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    # -- the log

    async def _observe(self, key: str, observation: JSON | None) -> None:
        """State what is known of a request; None if there is nothing any more."""
        at = object_id(key)
        text = "" if observation is None else msgspec.json.encode(observation, order="sorted").decode()
        about = internal_envelope(self._source, self._actor, self._now_ms())
        event = ResourcesObserved(about, at.source, [at.kind], [at.namespace], [at.name], [""], [text])
        await self.internal_events.append(self._partition, self._source, event)


async def _own_access(own: KubernetesApi, namespace: str) -> ClusterAccess:
    """The access to the cluster of the hosts, as its pods have it: by its Service and the authority in a namespace."""
    service = json.loads(await own.get("/api/v1/namespaces/default/services/kubernetes"))
    host, port = service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"]
    address = f"[{host}]" if ":" in host else host
    path = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"
    authority = json.loads(await own.get(path)).get("data") or {}
    return ClusterAccess(_OWN_CLUSTER, f"https://{address}:{port}", authority.get("ca.crt", "").encode())


def _life_s(observation: JSON) -> float:
    """The life of a written token. Half of it is the shortest time between two tokens, whatever the clocks say."""
    known = token_known(observation)
    return (known.expires_ms - known.issued_ms) / 1_000


def _sentence(error: Exception) -> str:
    """What went wrong, without the content of any answer."""
    if isinstance(error, ApiError):
        return f"the API server answered {error.status}: {error}" if error.status else f"no answer: {error}"
    if isinstance(error, KubeconfigInvalid | _NotYet):
        return str(error)
    return "the API server has answered with something else than was asked for"

"""KeepSecrets: Secrets that objects name, without Kubernetes. This process keeps them in files, and nothing of them is
appended, logged or returned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from commands.requests.validation import InvalidRequest, require
from commands.rpc.errors import PreconditionFailed
from eventstore.errors import PermanentError
from eventstore.reasons import Fault, Reason
from eventstore.replicas.replica import Replica
from projections.field_checks import quoted
from projections.fold_states import FoldStates
from projections.resources.items import check_object_name
from projections.resources.secret_names import named_secrets
from projections.resources.state import ResourcesState
from schemas.api import dpuplane_pb2 as pb
from schemas.events import MAX_ITEMS

SECRET_BYTES_MAX = 1_000_000
"""Maximum size of a Secret: that of Kubernetes is 1 MiB."""
LOCAL = "local"


class KeptSecret(NamedTuple):
    """A Secret as it is kept."""

    namespace: str
    name: str
    kind: str
    data: Mapping[str, bytes]


class SecretKeeper(Protocol):
    """Where Secrets are kept."""

    async def write(
        self, secrets: Sequence[KeptSecret], removed: Sequence[tuple[str, str]]
    ) -> Sequence[tuple[str, str]]:
        """Keep Secrets, instead of earlier ones with their names, and remove others. Returns those that it removed.
        Raises PermanentError."""
        ...


class SecretHandler:
    """Serves KeepSecrets."""

    def __init__(self, replica: Replica, keeper: SecretKeeper | None) -> None:
        self._states = FoldStates(replica)
        self._keeper = keeper

    async def keep(self, request: pb.KeepSecretsRequest) -> pb.KeepSecretsResponse:
        _check(request)
        if request.dry_run:
            named = await _named(self._states.resources(LOCAL))
            found = [each for each in request.secrets if (each.namespace, each.name) in named]
            return pb.KeepSecretsResponse(kept=_names(found))
        if self._keeper is None:
            reason = "secrets: this server keeps none, because it has neither the setting `data` nor `state`"
            raise PreconditionFailed(Fault(reason, Reason.INVALID_FIELD))
        given = [KeptSecret(each.namespace, each.name, each.type, dict(each.data)) for each in request.secrets]
        try:
            removed = await self._keeper.write(given, [(each.namespace, each.name) for each in request.removed])
        except PermanentError as error:  # of the disk
            raise PreconditionFailed(Fault(f"secrets: {error}", Reason.INVALID_FIELD)) from error
        names = [pb.SecretName(namespace=namespace, name=name) for namespace, name in removed]
        return pb.KeepSecretsResponse(kept=_names(request.secrets), removed=names)


async def _named(state: ResourcesState) -> set[tuple[str, str]]:
    """The Secrets that objects name, read in slices."""
    found: set[tuple[str, str]] = set()
    for number, (key, row) in enumerate([*state.objects.rows.items()]):
        found.update(named_secrets(key, row))
        if number % 200 == 0:
            await asyncio.sleep(0)
    return found


def _names(secrets: Iterable[pb.SecretValue]) -> list[pb.SecretName]:
    return [pb.SecretName(namespace=each.namespace, name=each.name) for each in secrets]


def _check(request: pb.KeepSecretsRequest) -> None:
    """Raises InvalidRequest for a name that is none, or for too much. No message quotes a value."""
    count = len(request.secrets) + len(request.removed)
    if not 1 <= count <= MAX_ITEMS:
        raise InvalidRequest(f"secrets: {count} items must be from 1 to {MAX_ITEMS}")
    named = [(f"secrets[{number}]", each.namespace, each.name) for number, each in enumerate(request.secrets)]
    named += [(f"removed[{number}]", each.namespace, each.name) for number, each in enumerate(request.removed)]
    for field, namespace, name in named:
        require(check_object_name(f"{field}.namespace", namespace) or check_object_name(f"{field}.name", name))
    for number, each in enumerate(request.secrets):
        size = sum(len(value) for value in each.data.values())
        if size > SECRET_BYTES_MAX:
            raise InvalidRequest(
                f"secrets[{number}].data: {size} bytes of {quoted(each.name)} are more than {SECRET_BYTES_MAX}"
            )

"""The Secrets of manifests that objects of the plane name: the server keeps them, outside the log.

The server is first asked by name which Secrets its objects need, and gets the values of these alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from deploy.cli.resources.manifests import Manifest, Manifests
from deploy.cli.resources.secret_manifests import SecretManifest, secret_value
from deploy.cli.shared.client import Client
from projections.resources.secret_names import named_secrets
from projections.resources.state import ObjectId, Resource
from schemas.api import dpuplane_pb2 as pb

_REQUEST_SECRETS = 1_000
_REQUEST_BYTES = 900_000


def take_named(client: Client, found: Manifests) -> list[pb.SecretValue]:
    """The Secrets that objects of these manifests or of the plane name. They no longer count as passed over; the faults
    of those that cannot be read are added."""
    if not found.secrets:
        return []
    named = {key for each in found.objects for key in _named_by(each)} | _named_by_plane(client, found.secrets)
    values = []
    for secret in found.secrets:
        if secret.key not in named:
            continue
        found.passed_over.remove(secret.note)
        value = secret_value(secret)
        if isinstance(value, str):
            found.faults.append(f"{secret.place}: Secret {secret.namespace}/{secret.name}: {value}")
        else:
            values.append(value)
    return values


def keep(client: Client, secrets: Sequence[pb.SecretValue]) -> Iterator[str]:
    """Have the server keep Secrets. Yields the name of each."""
    for part in _parts(secrets):
        answer: pb.KeepSecretsResponse = client.send("KeepSecrets", pb.KeepSecretsRequest(secrets=part))
        yield from (each.name for each in answer.kept)


def remove(client: Client, secrets: Sequence[SecretManifest]) -> Iterator[tuple[str, str]]:
    """Have the server remove Secrets. Yields the namespace and name of each that it had."""
    for start in range(0, len(secrets), _REQUEST_SECRETS):
        part = [pb.SecretName(namespace=each.namespace, name=each.name) for each in secrets[start:][:_REQUEST_SECRETS]]
        answer: pb.KeepSecretsResponse = client.send("KeepSecrets", pb.KeepSecretsRequest(removed=part))
        yield from ((each.namespace, each.name) for each in answer.removed)


def _named_by(manifest: Manifest) -> Iterator[tuple[str, str]]:
    kind, namespace, name = manifest.key
    row = Resource("", 0, 0, 0, 0, {}, {}, json.dumps(manifest.spec))
    return named_secrets(ObjectId("", kind, namespace, name).key, row)


def _named_by_plane(client: Client, secrets: Sequence[SecretManifest]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for start in range(0, len(secrets), _REQUEST_SECRETS):
        part = [pb.SecretValue(namespace=each.namespace, name=each.name) for each in secrets[start:][:_REQUEST_SECRETS]]
        request = pb.KeepSecretsRequest(secrets=part, dry_run=True)
        answer: pb.KeepSecretsResponse = client.send("KeepSecrets", request)
        found.update((each.namespace, each.name) for each in answer.kept)
    return found


def _parts(secrets: Sequence[pb.SecretValue]) -> Iterator[list[pb.SecretValue]]:
    """The Secrets of each request, which has at most 1 MB unless it is one Secret."""
    part: list[pb.SecretValue] = []
    size = 0
    for each in secrets:
        if part and (size + each.ByteSize() > _REQUEST_BYTES or len(part) == _REQUEST_SECRETS):
            yield part
            part, size = [], 0
        part.append(each)
        size += each.ByteSize()
    if part:
        yield part

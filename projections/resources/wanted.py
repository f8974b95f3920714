"""Wanted objects: what shall exist because of the objects that users state. They are derived and never stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from projections.resources.specs import JSON, Labels
from projections.resources.state import ObjectId, Resource

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of names that Kubernetes generates: no vowels, so no words."""


SecretForm = Literal["copy", "argocd-cluster"]
"""What a wanted Secret has of its source: the same data, or a cluster for Argo CD, made from a kubeconfig."""


class SecretSource(NamedTuple):
    """The Secret whose data a wanted Secret is made from when it is written. `cluster` is the name of the cluster in
    the form for Argo CD. `version` is that of the Secret if a watch follows it: another one is read again."""

    at: ObjectId
    form: SecretForm = "copy"
    cluster: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that shall exist, and the key of the object that wants it.

    A held object is kept as it is: its owner cannot be derived completely, for example because a template is missing.
    `fields` are its other top-level fields, such as `type`; an object without a spec has an empty one. Secrets are
    never in the log, nor in what is derived from it: `secret` names the source of a Secret's data. An object that
    outlives its owner is not deleted when nothing wants it any more: others may keep their objects in a namespace.
    """

    at: ObjectId
    owner: str
    spec: JSON
    labels: Labels = field(default_factory=dict)
    annotations: Labels = field(default_factory=dict)
    is_held: bool = False
    fields: JSON = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    secret: SecretSource | None = None
    outlives_owner: bool = False

    def as_row(self, created_ms: int) -> Resource:
        """The row that the object would have if it were stated, to read it like a stated one."""
        spec = msgspec.json.encode(self.spec).decode()
        return Resource("", 0, created_ms, 0, 0, self.labels, self.annotations, spec)


def digest(*values: Any) -> str:
    """A digest of JSON values, as ten hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:10]


def suffix(*values: Any) -> str:
    """The end of a generated name: five letters and digits that follow from JSON values."""
    number = int.from_bytes(hashlib.sha256(msgspec.json.encode(values, order="sorted")).digest()[:8], "big")
    letters = []
    for _ in range(5):
        number, letter = divmod(number, len(_SUFFIX_LETTERS))
        letters.append(_SUFFIX_LETTERS[letter])
    return "".join(letters)

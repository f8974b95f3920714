"""The description of a kind whose objects other programs own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from projections.kubernetes.status_body import shortened
from schemas.kubernetes.objects import Custom, Fields

MESSAGE_MAX = 500
"""Maximum length of a message that another program wrote."""
Decoded = TypeVar("Decoded")
Observe: TypeAlias = Callable[[Custom], Mapping[str, object] | None]
"""The fields of the observation of an object; None if the plane does not observe this object."""


class ForeignKind(NamedTuple):
    """A kind and how to observe its objects. `name` is the kind as the fold names it, `Kind.group`."""

    name: str
    group_version: str
    plural: str
    observe: Observe
    label_selector: str = ""

    @property
    def path(self) -> str:
        """The path of the objects of all namespaces."""
        root = "/api" if "/" not in self.group_version else "/apis"
        return f"{root}/{self.group_version}/{self.plural}"


class Condition(Fields, frozen=True, gc=False):
    """A condition in the status of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


def condition(conditions: Sequence[Condition] | None, kind: str) -> Condition | None:
    """The condition of a type."""
    return next((each for each in conditions or () if each.type == kind), None)


def told(*parts: str) -> str:
    """The first text that is not empty, on one line and shortened."""
    return shortened(" ".join(next(filter(None, parts), "").split()), MESSAGE_MAX)


def decoded(decoder: msgspec.json.Decoder[Decoded], raw: msgspec.Raw, default: Decoded) -> Decoded:
    """A part of an object; the default if it has another form than its definition says."""
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return default

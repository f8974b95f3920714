"""Observations of the real thing behind an object: a download, a device, a cluster, an application."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class Common(msgspec.Struct, frozen=True):
    """The fields that observations of all kinds have.

    `message` says why the thing is not ready, in one sentence without the name of the object.
    """

    ready: bool = False
    phase: str = ""
    message: str = ""


_common = msgspec.json.Decoder(Common)


class Observation(NamedTuple):
    """An observation with its common fields decoded. `text` is the whole observation, a JSON object."""

    is_ready: bool
    phase: str = ""
    message: str = ""
    text: str = "{}"

    @property
    def fields(self) -> dict[str, Any]:
        """All fields of the observation by name."""
        found: dict[str, Any] = msgspec.json.decode(self.text)
        return found


def observation(text: str) -> Observation:
    """The observation in a JSON text. Raises MsgspecError or UnicodeEncodeError if its common fields are invalid."""
    found = _common.decode(text)
    return Observation(found.ready, found.phase, found.message, text)

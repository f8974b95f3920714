"""Why an object is not as its user wants it: a sentence, and the object that is to blame."""

from __future__ import annotations

from typing import NamedTuple

from projections.resources.kinds import short_name


class Blame(NamedTuple):
    """A fault in one sentence. `key` is the object whose change would remove it. `is_unknown` means that nothing is
    known against the object: nothing has been reported about it."""

    key: str
    message: str
    is_unknown: bool = False


def absent(key: str) -> Blame:
    """The blame on an object that does not exist."""
    return Blame(key, f"{short_name(key)} does not exist")


def deleting(key: str) -> Blame:
    """The blame on an object that is being deleted."""
    return Blame(key, f"{short_name(key)} is being deleted")

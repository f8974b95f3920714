"""Errors of a call: nothing was appended, and an error is not an outcome of the command.

Another server, or this one later, may accept the same command. The log alone decides an outcome.
"""

from __future__ import annotations

from eventstore.errors import PermanentError


class CommandIdInUse(PermanentError):
    """The command id is bound to another partition: it belongs to another command. gRPC: ALREADY_EXISTS."""


class PositionExpired(PermanentError):
    """A stream cannot begin at this position: the log no longer has it, or does not have it yet. gRPC: OUT_OF_RANGE."""


class PreconditionFailed(PermanentError):
    """This server cannot append the command now; the message says what must change. gRPC: FAILED_PRECONDITION."""

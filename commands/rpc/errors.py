"""Errors of a call that say nothing of the command: nothing was appended, and no error is an outcome.

Another server, or this one later, may take the same command. The log alone decides an outcome.
"""

from __future__ import annotations

from eventstore.errors import PermanentError


class CommandIdInUse(PermanentError):
    """The command id is bound to another partition: it belongs to another command. gRPC: ALREADY_EXISTS."""


class PreconditionFailed(PermanentError):
    """This server cannot state the command now; the message says what must change. gRPC: FAILED_PRECONDITION."""

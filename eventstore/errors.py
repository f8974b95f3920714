"""The errors of the plane: one root and three families. The family decides how a caller reacts."""

from __future__ import annotations


class PlaneError(Exception):
    """Root of all errors that dpuplane raises on purpose. The message is one sentence that a user can act on."""


class TransientError(PlaneError):
    """A retry, within a budget, may succeed."""


class PermanentError(PlaneError):
    """A retry cannot succeed: the request is refused, or the record is quarantined."""


class FatalError(PlaneError):
    """The process stops, because continuing would cause damage."""


class AppendUnknown(TransientError):
    """The record may or may not be in the log, and may still land. A command that is repeated with the same id gets
    the outcome of the first.
    """


class AppendRefused(PermanentError):
    """The record is certainly not in the log and never will be."""


class LogUnavailable(TransientError):
    """The log did not answer in time; nothing was changed."""


class LogMissing(LogUnavailable):
    """There is no log yet: a process that may create one has to start first."""


class LogMismatch(FatalError):
    """The log is not the one this state was folded from: truncated, re-created, edited, or repartitioned."""


class Undecodable(PermanentError):
    """The bytes are not one of our events: the schema id is unknown, or the body does not match its schema."""

"""The errors of the plane: one root and three families. The family decides how a caller reacts."""

from __future__ import annotations


class PlaneError(Exception):
    """Root of everything dpuplane raises on purpose. The message is one sentence a user can act on."""


class TransientError(PlaneError):
    """Trying again may help, within a budget."""


class PermanentError(PlaneError):
    """Trying again cannot help; what caused it is refused or quarantined."""


class FatalError(PlaneError):
    """Going on would make things worse: the process stops."""


class AppendUnknown(TransientError):
    """The record may or may not be in the log, now or later. Its id makes the outcome definite by itself."""


class AppendRefused(PermanentError):
    """The record is certainly not in the log and never will be."""


class LogUnavailable(TransientError):
    """The log did not answer in time; nothing was changed."""


class LogMissing(LogUnavailable):
    """There is no log here yet: somebody who may make one has to start first."""


class LogMismatch(FatalError):
    """The log is not the one this state was folded from: truncated, re-created, edited, or repartitioned."""


class Undecodable(PermanentError):
    """Bytes that are no event of ours: unknown schema id, or a body that its schema does not read."""

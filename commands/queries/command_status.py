"""The status of a command by its id.

The outcome of a command that is not in the log becomes definite after three minutes. A fold accepts a command only if
it was appended within two minutes of the time in its id. One more minute allows for differences between clocks. If the
log, read to its end after that time, has no record of the id, the folds refuse every copy that still arrives.
"""

from __future__ import annotations

from collections.abc import Callable

from commands import results
from commands.object_comparisons import COMPARISONS_MAX, changed_objects, with_later_comparison
from eventstore.folding.ledger import AHEAD_MS, LATE_MS
from eventstore.ids import comparison_id, issued_at_ms
from eventstore.reasons import Reason
from eventstore.replicas.folded_log import FoldedLog
from eventstore.replicas.status import PartitionStatus
from schemas.api import dpuplane_pb2 as pb


class CommandStatus:
    """Serves GetCommand."""

    def __init__(
        self,
        folds: FoldedLog,
        now_ms: Callable[[], int],
        with_fleet: Callable[[pb.CommandResult], pb.CommandResult] = lambda answer: answer,
    ) -> None:
        """`with_fleet` adds the command's status in fleet to an answer from the ledgers."""
        self._folds = folds
        self._with_fleet = with_fleet
        self._now_ms = now_ms

    def answer(self, command_id: str) -> pb.CommandResult:
        """The result of a command, from the ledgers of all partitions. Raises PermanentError for an invalid id."""
        latest_ms = issued_at_ms(command_id) + LATE_MS + AHEAD_MS
        known = self._folds.outcomes(command_id)
        if known:
            answer = results.merged_result(command_id, known, self._folds.log_id)
            return self._with_fleet(self._with_later_comparisons(answer))
        left_ms = latest_ms - self._now_ms()
        if left_ms > 0:
            reason = f"the command is not in the log yet, and can still arrive within {left_ms // 1000 + 1} s"
            return results.unknown(command_id, reason)
        behind = next(filter(self._is_behind, self._folds.partitions_status()), None)
        if behind is not None:
            return results.unknown(
                command_id, f"the command may be in the part of {behind.partition} that is not folded yet"
            )
        if self._folds.ends_seen_ms < latest_ms:
            return results.unknown(
                command_id, "the command may be in the log: the log's end was last read before the command expired"
            )
        if self._is_forgotten(command_id):
            shows = f"`dpuplane events export --command {command_id}` prints its events"
            reason = f"the outcome of the command is no longer kept; {shows}"
            return results.unknown(command_id, reason, Reason.OUTCOME_FORGOTTEN)
        return results.expired(command_id)

    def _with_later_comparisons(self, answer: pb.CommandResult) -> pb.CommandResult:
        """The result after the last comparison of the objects of a command."""
        for number in range(1, COMPARISONS_MAX):
            if not changed_objects(answer, (answer.command_id,)):
                break
            later = self._folds.outcomes(comparison_id(answer.command_id, number))
            if not later:
                break
            message = results.merged_result(answer.command_id, later, self._folds.log_id)
            answer = with_later_comparison(answer, message)
        return answer

    def _is_forgotten(self, command_id: str) -> bool:
        """Whether a fold may have decided the command without remembering its outcome."""
        partitions = (p for topic in self._folds.topics.deciding for p in self._folds.partitions(topic))
        return any(self._folds.folded(partition).ledger.has_forgotten(command_id) for partition in partitions)

    def _is_behind(self, status: PartitionStatus) -> bool:
        is_deciding = status.partition.topic in self._folds.topics.deciding
        return is_deciding and (status.lag > 0 or bool(status.halted))

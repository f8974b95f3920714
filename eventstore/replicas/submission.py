"""Submits a command: append it, fold up to it, return its outcome.

The outcome comes from the fold, never from the append: an append may fail after the record landed, or land twice. If
the outcome of the append is unknown, the caller waits on, because the record may still be folded. At the deadline the
wait ends with AppendUnknown. If the caller sends the same command again, it gets the outcome of the first.
"""

from __future__ import annotations

import asyncio
from functools import partial

from eventstore.avro.codec import encode
from eventstore.errors import AppendUnknown, LogUnavailable
from eventstore.folding.command_digest import command_digest
from eventstore.folding.hashes import value_digest
from eventstore.folding.partition import FoldedPartition
from eventstore.log import EventLog
from eventstore.replicas.tracing import LogTracing, TracedAppend
from eventstore.replicas.wait_lists import Answer, AnswerWaitList
from schemas.events import Event


async def submit(
    log: EventLog,
    folded: FoldedPartition,
    answers: AnswerWaitList,
    *,
    key: bytes,
    event: Event,
    timeout_s: float,
    tracing: LogTracing | None = None,
) -> Answer:
    """See Replica.submit."""
    value = encode(event)
    content = command_digest(event, value_digest(value))
    command_id = event.envelope.command_id
    assert command_id, "an internal event has no outcome to wait for"
    if known := folded.ledger.find(command_id, content):
        return Answer(known.outcome, folded.partition, known.offset)
    if folded.halted:
        raise LogUnavailable(f"partition: {folded.partition} is halted on this replica: {folded.halted}")
    answer = answers.expect(content, timeout_s, partial(_late, command_id, timeout_s))
    traced = tracing.on_append(folded.partition, event) if tracing is not None else None
    headers = traced.headers if traced is not None else ()
    append = asyncio.ensure_future(log.append(folded.partition, key, value, timeout_s=timeout_s, headers=headers))
    append.add_done_callback(partial(_end_if_not_appended, answer))
    if traced is not None:
        append.add_done_callback(partial(_end_trace, traced))
    try:
        return await answer
    finally:
        append.cancel()
        answers.forget(content, answer)


def _late(command_id: str, timeout_s: float) -> AppendUnknown:
    reason = f"outcome unknown after {timeout_s:.3g} s; repeat the command with the same id"
    return AppendUnknown(f"command {command_id}: {reason}")


def _end_trace(traced: TracedAppend, append: asyncio.Future[None]) -> None:
    """End the trace of an append. An append is cancelled when its record was folded before the acknowledgement, or when
    the caller has gone away.
    """
    traced.finish(None if append.cancelled() else append.exception())


def _end_if_not_appended(answer: asyncio.Future[Answer], append: asyncio.Future[None]) -> None:
    """End the answer with the error of an append that certainly did not land. After AppendUnknown the record may still
    land.
    """
    error = None if append.cancelled() else append.exception()
    if error is not None and not isinstance(error, AppendUnknown) and not answer.done():
        answer.set_exception(error)

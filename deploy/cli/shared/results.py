"""Results of commands: merged, printed, and turned into the exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import click

from deploy.cli.shared.errors import REFUSED, UNKNOWN
from deploy.cli.shared.output import Output, colored
from eventstore.reasons import Reason
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name

_PRECEDENCE = (
    pb.OUTCOME_UNKNOWN,
    pb.OUTCOME_HELD,
    pb.OUTCOME_WAITING,
    pb.OUTCOME_DONE,
    pb.OUTCOME_UNCHANGED,
    pb.OUTCOME_REFUSED,
)
"""Outcomes by precedence: the outcome of several commands is the first of these that at least one command has. It is
`refused` only if every command is refused."""


def finish(answer: pb.CommandResult, output: str) -> None:
    """Print the result of a command and exit with its status."""
    Output(output).print_one(answer, answer.command_id, lambda: _print(answer))
    if output not in ("table", "wide") and exit_status(answer):
        click.echo(sentence(answer), err=True)
    click.get_current_context().exit(exit_status(answer))


def exit_status(answer: pb.CommandResult) -> int:
    outcomes = {answer.outcome, *(item.outcome for item in answer.items)}
    if outcomes & {pb.OUTCOME_UNSPECIFIED, pb.OUTCOME_UNKNOWN}:
        return UNKNOWN
    return REFUSED if pb.OUTCOME_REFUSED in outcomes else 0


def sentence(answer: pb.CommandResult) -> str:
    """A result in one line."""
    line = _with_index(outcome_name(answer.outcome), answer)
    if answer.HasField("hold"):
        line += f", hold {answer.hold}"
    if answer.reason:
        line += f": {answer.reason}"
    if answer.outcome == pb.OUTCOME_UNKNOWN and answer.reason_code != Reason.OUTCOME_FORGOTTEN:  # nothing to ask for
        line += f"; check it with `dpuplane commands show {answer.command_id}`"
    return line


def _print(answer: pb.CommandResult) -> None:
    err = exit_status(answer) != 0
    click.echo(colored(sentence(answer), err=err), err=err)
    is_told = _is_told(answer)
    for item in answer.items:
        if not is_told:
            click.echo(_item_line(item, err=err), err=err)
        elif item.note:
            click.echo(f"  {item.name}: {item.note}", err=err)
    for part in answer.partitions:
        said = f": {part.reason}" if part.reason else ""
        click.echo(f"  {part.partition}: {outcome_name(part.outcome)}{said}", err=err)


def _is_told(answer: pb.CommandResult) -> bool:
    """Whether the first line already has the outcome and reason of the only item."""
    return [(item.outcome, item.reason) for item in answer.items] == [(answer.outcome, answer.reason)]


def _with_index(outcome: str, answer: pb.CommandResult | pb.ItemResult) -> str:
    """The outcome of a claim with its index or queue position."""
    if answer.HasField("index"):
        outcome += f", index {answer.index}"
    if answer.HasField("queue_position"):
        outcome += f", queue position {answer.queue_position}"
    return outcome


def _item_line(item: pb.ItemResult, *, err: bool) -> str:
    outcome = _with_index(colored(outcome_name(item.outcome), err=err), item)
    said = "; ".join(filter(None, (item.reason, item.note)))
    return f"  {item.name}: {outcome}{': ' if said else ''}{said}"


def finish_items(answers: Sequence[Part], output: str) -> None:
    """Like `finish` for commands about many names: one line per name, then the count of each outcome."""
    whole = merged_result(answers)
    named = [item for names, answer in answers for item in results_of(names, answer)]
    if len(named) == 1:
        finish(whole, output)
    if output == "table":
        err = exit_status(whole) != 0
        for item in named:
            click.echo(_item_line(item, err=err), err=err)
        counts = Counter(outcome_name(item.outcome) for item in named)
        counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        hold = f", hold {whole.hold}" if whole.HasField("hold") else ""
        click.echo(f"{colored(outcome_name(whole.outcome), err=err)}{hold}: {counted}", err=err)
        click.get_current_context().exit(exit_status(whole))
    del whole.items[:]
    whole.items.extend(named)
    finish(whole, output)


def results_of(names: Sequence[str], answer: pb.CommandResult) -> Iterator[pb.ItemResult]:
    """The result of each name of a command."""
    told = {item.name: item for item in answer.items}
    for name in names:
        yield told.get(name) or _item_like(name, answer)


def _item_like(name: str, answer: pb.CommandResult) -> pb.ItemResult:
    """The result of an item that has the outcome of its command."""
    return pb.ItemResult(
        name=name,
        outcome=answer.outcome,
        reason=answer.reason,
        reason_code=answer.reason_code,
        reason_fields=answer.reason_fields,
    )


Part: TypeAlias = tuple[Sequence[str], pb.CommandResult]
"""The result of one of several commands, with the names of its items."""


def merged_result(answers: Sequence[Part]) -> pb.CommandResult:
    """Merge the results of several commands into one, which has all their items. If a command
    differs from the merged result in its outcome or reason, an item is added for each of its names without an item."""
    if len(answers) == 1:
        return answers[0][1]
    decisive = min((answer for _, answer in answers), key=lambda answer: _PRECEDENCE.index(answer.outcome))
    whole = pb.CommandResult(
        command_id=answers[0][1].command_id,
        outcome=decisive.outcome,
        reason=decisive.reason,
        reason_code=decisive.reason_code,
        reason_fields=decisive.reason_fields,
        position=merged_position([answer.position for _, answer in answers]),
    )
    if decisive.HasField("hold"):
        whole.hold = decisive.hold
    for names, answer in answers:
        differing = {item.name for item in answer.items}
        whole.items.extend(answer.items)
        whole.items.extend(
            _item_like(name, answer)
            for name in names
            if name not in differing and (answer.outcome, answer.reason) != (whole.outcome, whole.reason)
        )
    return whole


def merged_position(tokens: Sequence[str]) -> str:
    """Merge the tokens of one log into one token, which has the latest position of each partition."""
    later: dict[str, int] = {}
    log_id = ""
    for token in filter(None, tokens):
        log_id, _, parts = token.partition(":")
        for part in filter(None, parts.split(",")):
            partition, _, offset = part.partition("=")
            later[partition] = max(later.get(partition, 0), int(offset))
    return f"{log_id}:" + ",".join(f"{partition}={offset}" for partition, offset in later.items()) if log_id else ""

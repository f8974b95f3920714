"""Answers of the plane to commands: printed, merged, and turned into the exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import click

from deploy.cli.failures import REFUSED, UNKNOWN
from deploy.cli.output import coloured, print_value
from deploy.plain import to_plain
from schemas.api import dpuplane_pb2 as pb

_DECISIVE = (
    pb.Answer.unknown,
    pb.Answer.held,
    pb.Answer.waiting,
    pb.Answer.done,
    pb.Answer.unchanged,
    pb.Answer.refused,
)
"""The outcome of several commands is the first of these that one of them has: `refused` only if all of them are."""


def finish(answer: pb.Answer, output: str) -> None:
    """Print an answer and end with its exit status."""
    if output == "table":
        _print(answer)
    else:
        print_value(to_plain(answer), output)
        if exit_status(answer):
            click.echo(sentence(answer), err=True)
    click.get_current_context().exit(exit_status(answer))


def exit_status(answer: pb.Answer) -> int:
    outcomes = {answer.outcome, *(item.outcome for item in answer.items)}
    if pb.Answer.unknown in outcomes:
        return UNKNOWN
    return REFUSED if pb.Answer.refused in outcomes else 0


def sentence(answer: pb.Answer) -> str:
    """An answer in one line."""
    said = [pb.Answer.Outcome.Name(answer.outcome)]
    if answer.HasField("index"):
        said.append(f"index {answer.index}")
    if answer.HasField("place"):
        said.append(f"place {answer.place} in line")
    if answer.HasField("hold"):
        said.append(f"hold {answer.hold}")
    line = ", ".join(said)
    if answer.reason:
        line += f": {answer.reason}"
    if answer.outcome == pb.Answer.unknown and "`dpuplane " not in answer.reason:  # which knows better what to ask
        line += f"; ask again with `dpuplane commands show {answer.command_id}`"
    return line


def _print(answer: pb.Answer) -> None:
    err = exit_status(answer) != 0
    click.echo(coloured(sentence(answer), err=err), err=err)
    is_told = _is_told(answer)
    for item in answer.items:
        if not is_told:
            click.echo(_item_line(item, err=err), err=err)
        elif item.note:
            click.echo(f"  {item.name}: {item.note}", err=err)
    for part in answer.partitions:
        said = f": {part.reason}" if part.reason else ""
        click.echo(f"  {part.partition}: {pb.Answer.Outcome.Name(part.outcome)}{said}", err=err)


def _is_told(answer: pb.Answer) -> bool:
    """Whether the first line says already outcome and reason of the only item."""
    return [(item.outcome, item.reason) for item in answer.items] == [(answer.outcome, answer.reason)]


def _item_line(item: pb.ItemAnswer, *, err: bool) -> str:
    outcome = coloured(pb.Answer.Outcome.Name(item.outcome), err=err)
    said = "; ".join(filter(None, (item.reason, item.note)))
    return f"  {item.name}: {outcome}{': ' if said else ''}{said}"


def finish_items(answers: Sequence[Part], output: str) -> None:
    """As `finish` of commands about many names: a line for each name first, and then how many came out in which way."""
    whole = merged(answers)
    named = [item for names, answer in answers for item in _items(names, answer)]
    if len(named) == 1:
        finish(whole, output)
    if output == "table":
        err = exit_status(whole) != 0
        for item in named:
            click.echo(_item_line(item, err=err), err=err)
        counts = Counter(pb.Answer.Outcome.Name(item.outcome) for item in named)
        counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        hold = f", hold {whole.hold}" if whole.HasField("hold") else ""
        click.echo(f"{coloured(pb.Answer.Outcome.Name(whole.outcome), err=err)}{hold}: {counted}", err=err)
        click.get_current_context().exit(exit_status(whole))
    del whole.items[:]
    whole.items.extend(named)
    finish(whole, output)


def _items(names: Sequence[str], answer: pb.Answer) -> Iterator[pb.ItemAnswer]:
    """What became of each name of a command."""
    told = {item.name: item for item in answer.items}
    for name in names:
        yield told.get(name) or pb.ItemAnswer(name=name, outcome=answer.outcome, reason=answer.reason)


Part: TypeAlias = tuple[Sequence[str], pb.Answer]
"""The answer to one of several commands, with the names of the items that it was about."""


def merged(answers: Sequence[Part]) -> pb.Answer:
    """Answers to several commands as one, which says of each item how it differs from the whole."""
    if len(answers) == 1:
        return answers[0][1]
    decisive = min((answer for _, answer in answers), key=lambda answer: _DECISIVE.index(answer.outcome))
    whole = pb.Answer(
        command_id=answers[0][1].command_id,
        outcome=decisive.outcome,
        reason=decisive.reason,
        position=merged_position([answer.position for _, answer in answers]),
    )
    if decisive.HasField("hold"):
        whole.hold = decisive.hold
    for names, answer in answers:
        differing = {item.name for item in answer.items}
        whole.items.extend(answer.items)
        whole.items.extend(
            pb.ItemAnswer(name=name, outcome=answer.outcome, reason=answer.reason)
            for name in names
            if name not in differing and (answer.outcome, answer.reason) != (whole.outcome, whole.reason)
        )
    return whole


def merged_position(tokens: Sequence[str]) -> str:
    """The later position of each partition, of tokens of one log."""
    later: dict[str, int] = {}
    log_id = ""
    for token in filter(None, tokens):
        log_id, _, parts = token.partition(":")
        for part in filter(None, parts.split(",")):
            partition, _, offset = part.partition("=")
            later[partition] = max(later.get(partition, 0), int(offset))
    return f"{log_id}:" + ",".join(f"{partition}={offset}" for partition, offset in later.items()) if log_id else ""

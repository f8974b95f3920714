"""A fold and an actor that only tests have: a topic of notes, and an actor that writes some notes into it.

The fold accepts each number once, in order. The actor writes the next note until the fold shows all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from drivers.internal_events import InternalEvents
from eventstore.folding.fold import DONE, Decision, RecordMetadata, refusal
from eventstore.folding.state_table import StateTable
from eventstore.ids import internal_envelope
from eventstore.log import Partition
from schemas.events import Event
from tests.support.extension.noted_event import NoteWritten

if TYPE_CHECKING:
    from deploy.composition.roles import ActorContext

NOTES = "notes"
NOTES_0 = Partition(NOTES, 0)
NOTES_WANTED = 3
RETRY_S = 1.0


class Note(msgspec.Struct, frozen=True, gc=False, array_like=True):
    text: str
    written_ms: int


class NotesState:
    """The notes by number."""

    def __init__(self) -> None:
        self.notes: StateTable[Note] = StateTable("notes", Note)

    @property
    def tables(self) -> tuple[StateTable[Note]]:
        return (self.notes,)

    def rederive(self) -> None:
        """Nothing is derived."""


class NoteAdded(NamedTuple):
    number: int
    note: Note


class NotesFold:
    topic = NOTES
    version = 1
    accepts = frozenset({NoteWritten.__name__})

    def initial_state(self, partition: Partition) -> NotesState:
        return NotesState()

    def decide(self, state: NotesState, event: Event, at: RecordMetadata) -> Decision:
        assert isinstance(event, NoteWritten)
        if event.number != len(state.notes.rows):
            return refusal(f"number: {event.number} must be {len(state.notes.rows)}, the next one")
        return Decision(NoteAdded(event.number, Note(event.text, at.time_ms)), DONE)

    def evolve(self, state: NotesState, change: NoteAdded, at: RecordMetadata) -> None:
        state.notes.put(str(change.number), change.note)


class NoteWriter:
    """Writes the wanted notes, by rank."""

    def __init__(self, context: ActorContext) -> None:
        self._context = context
        self.internal_events = InternalEvents(context.replica, context.ranks, "api")

    async def run(self) -> None:
        await self._context.replica.ready()
        while (number := self._written()) < NOTES_WANTED:
            is_written = lambda number=number: self._written() > number  # noqa: E731
            if not await self.internal_events.wait_for_turn(NOTES, NOTES_0, is_written):
                said = internal_envelope(f"note-{number}", "notes", self._context.now_ms())
                await self.internal_events.append(NOTES_0, NOTES, NoteWritten(said, number, f"note {number}"))
            await self._context.replica.fold_waits.wait_for(is_written, NOTES_0, timeout_s=RETRY_S)

    def _written(self) -> int:
        state: NotesState = self._context.replica.state(NOTES_0)
        return len(state.notes.rows)

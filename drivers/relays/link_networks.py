"""The network documents of one link's DPUs: which of them are due, and which statuses of agents the log lacks.

A document is small and changes seldom, so it is sent whole. DPUs with the same document and version share a message. A
relay sends none to agents that do not take documents, and none while a freeze is in effect. The status of an
agent is compared with the log, and only a difference is reported: after a lost report, the next heartbeat shows the
difference again.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from drivers.relays.delivery_state import BACKOFF_FIRST_S, BACKOFF_LAST_S
from drivers.relays.network_source import NetworkSource
from drivers.relays.numbering import Numbering
from drivers.relays.served_zone import ServedZone
from drivers.wire import relay_messages
from drivers.wire.agent_messages import NO_DIGEST, Hello, NetworkRefusal
from drivers.wire.links import Link
from drivers.wire.protocol import NetworkStatus, numbers_of
from eventstore.backoff import backoff_ceiling
from projections.zones.dpus.networks import MAX_REFUSAL, MAX_UNRESOLVED_CHARACTERS
from projections.zones.rows import DpuNetwork

BACKLOG_BYTES = 1024 * 1024
"""Backlog of a link above which it gets no document."""
RESEND_HEARTBEATS = 2
"""Number of heartbeats after which a document without an answer is sent again."""
ENCODED_MAX = 64
"""Number of encoded documents of a relay."""


class DocumentStatus(NamedTuple):
    """The last status of a DPU's agent, relative to the document that is wanted there: the wanted version, the version
    that the DPU has applied, the interfaces without a port, and the reason of a refusal."""

    version: int
    applied: int
    unresolved: tuple[str, ...]
    refusal: str


@dataclass(slots=True)
class _DpuState:
    """The delivery of one DPU's document. `status` is the last one of its agent, with the DPU itself left out."""

    status: NetworkStatus
    sent: int = 0
    sent_at: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    refused: int = 0
    reason: str = ""


class EncodedNetworks:
    """The encoded documents that a relay sent last."""

    def __init__(self, source: NetworkSource) -> None:
        self.encoded = 0
        self._source = source
        self._messages: OrderedDict[tuple[int, int, str], bytes] = OrderedDict()

    def message(self, zone: str, row: DpuNetwork) -> bytes:
        """The message with this document, for all DPUs of any link."""
        key = (self._source.epoch, row.version, row.digest)
        message = self._messages.get(key)
        if message is None:
            self.encoded += 1
            text, digest = self._source.text(zone, row.digest), bytes.fromhex(row.digest)
            message = relay_messages.encode_network(self._source.epoch, row.version, digest, text)
            self._messages[key] = message
            if len(self._messages) > ENCODED_MAX:
                self._messages.popitem(last=False)
        return message


class LinkNetworks:
    """The documents of the DPUs of one link whose agents take documents."""

    def __init__(
        self,
        link: Link,
        zone: ServedZone[Any],
        numbering: Numbering,
        encoded: EncodedNetworks,
        source: NetworkSource,
        *,
        is_served: Callable[[str], bool],
        on_status: Callable[[], None],
        rng: random.Random,
        resend_s: float,
    ) -> None:
        self.sent = 0
        self._link = link
        self._zone = zone
        self._numbering = numbering
        self._encoded = encoded
        self._source = source
        self._is_served = is_served
        self._on_status = on_status
        self._rng = rng
        self._resend_s = resend_s
        self._states: dict[int, _DpuState] = {}
        self._pending: dict[int, None] = {}
        """The DPUs whose documents may be due."""
        self._unreported: dict[int, None] = {}
        """The DPUs whose agents have sent a status that the log may lack."""

    @property
    def has_unreported(self) -> bool:
        """Whether agents have sent a status that the log may lack."""
        return bool(self._unreported)

    def handle_hello(self, hello: Hello) -> None:
        """Take over the documents of the DPUs of a Hello."""
        left = self._numbering.mask_of(hello.dpus)
        if not hello.takes_networks:
            for number in numbers_of(left):
                self._states.pop(number, None)
            return
        for status in (*hello.networks, NetworkStatus(left, 0, 0, 0, NO_DIGEST)):
            members = status.dpus & left
            left &= ~members
            for number in numbers_of(members):
                self._states[number] = _DpuState(status._replace(dpus=0))
                self._note_unreported(number)

    def handle_statuses(self, statuses: Iterable[NetworkStatus]) -> None:
        """Record the statuses of documents. DPUs that no Hello has named are ignored."""
        for status in statuses:
            self._handle_status(status)

    def _handle_status(self, status: NetworkStatus) -> None:
        for number in numbers_of(status.dpus):
            state = self._states.get(number)
            if state is None:
                continue
            if status.applied > state.status.applied or status.epoch > state.status.epoch:
                state.failures, state.not_before, state.reason = 0, 0.0, ""
            state.status = status._replace(dpus=0)
            self._note_unreported(number)

    def handle_refusal(self, refusal: NetworkRefusal, now: float) -> None:
        """Delay the next attempt at the DPUs that refused a document."""
        self._handle_status(refusal.status)
        for number in numbers_of(refusal.status.dpus):
            state = self._states.get(number)
            if state is not None and refusal.version == state.sent:
                state.failures += 1
                wait_s = self._rng.uniform(0.5, 1.0) * backoff_ceiling(state.failures, BACKOFF_FIRST_S, BACKOFF_LAST_S)
                state.sent, state.not_before = 0, now + wait_s
                state.refused, state.reason = refusal.version, f"{refusal.code.name}: {refusal.reason}"[:MAX_REFUSAL]

    def note(self, number: int) -> None:
        """The wanted document of a DPU may have changed."""
        if number in self._states:
            self._pending[number] = None

    def note_all(self) -> None:
        """The wanted documents of all DPUs may have changed."""
        self._pending |= dict.fromkeys(self._states)

    def send_due(self, now: float) -> None:
        """Send the documents that are due. Raises LinkClosed."""
        if not self._pending or self._link.backlog > BACKLOG_BYTES or self._zone.is_frozen_now:
            return
        due: dict[tuple[int, str], tuple[DpuNetwork, int]] = {}
        for number in [*self._pending]:
            row = self._wanted(number)
            if row is None or self._has(number, row):
                del self._pending[number]
            elif self._is_due(self._states[number], row, now):
                _, members = due.get((row.version, row.digest), (row, 0))
                due[row.version, row.digest] = row, members | 1 << number
        for row, members in due.values():
            group = b"" if self._numbering.is_all(members) else relay_messages.encode_group(members)
            self._link.send(self._encoded.message(self._zone.name, row) + group)
            self.sent += 1
            for number in numbers_of(members):
                self._states[number].sent, self._states[number].sent_at = row.version, now

    def unreported(self) -> dict[DocumentStatus, int]:
        """The statuses that the log lacks, each with its DPUs."""
        members: dict[DocumentStatus, int] = {}
        for number in [*self._unreported]:
            row, state = self._wanted(number), self._states.get(number)
            status = self._document_status(state, row) if row is not None and state is not None else None
            if status is None or row is None or status == _status_in_log(row):
                del self._unreported[number]
            else:
                members[status] = members.get(status, 0) | 1 << number
        return members

    def ordinals(self, members: int) -> int:
        """The ordinals of these DPUs, as bits."""
        ordinals = 0
        for ordinal in self._numbering.ordinals_of(numbers_of(members)):
            ordinals |= 1 << ordinal if ordinal >= 0 else 0
        return ordinals

    def mark_reported(self, members: int) -> None:
        """The log has the statuses of these DPUs that `unreported` returned."""
        for number in numbers_of(members):
            self._unreported.pop(number, None)

    def _note_unreported(self, number: int) -> None:
        """Note a DPU with a new status: the status may have to be reported, and another document may be due."""
        self._unreported[number] = self._pending[number] = None
        self._on_status()

    def _wanted(self, number: int) -> DpuNetwork | None:
        name = self._numbering.name_of(number)
        return self._source.wanted(self._zone.name, name) if self._is_served(name) else None

    def _has(self, number: int, row: DpuNetwork) -> bool:
        """Whether a DPU has the wanted document, or one of a later log, which only its own log replaces."""
        status = self._states[number].status
        if status.epoch != self._source.epoch:
            return status.epoch > self._source.epoch
        return status.applied > row.version or (status.applied == row.version and status.digest.hex() == row.digest)

    def _is_due(self, state: _DpuState, row: DpuNetwork, now: float) -> bool:
        is_new = row.version not in (state.sent, state.refused)
        return is_new or now >= max(state.not_before, state.sent_at + self._resend_s if state.sent else 0.0)

    def _document_status(self, state: _DpuState, row: DpuNetwork) -> DocumentStatus | None:
        """The agent's last status, relative to the wanted document; None if the DPU has a document that this replica
        has not folded yet."""
        status, applied = state.status, 0
        if status.epoch == self._source.epoch and status.applied <= row.version:
            is_other = status.applied == row.version and status.digest.hex() != row.digest
            applied = 0 if is_other else status.applied
        elif status.epoch >= self._source.epoch:
            return None
        unresolved = status.unresolved if applied == row.version else ()
        reason = state.reason if state.refused == row.version and applied < row.version else ""
        return DocumentStatus(row.version, applied, _bounded(unresolved), reason)


def _status_in_log(row: DpuNetwork) -> DocumentStatus:
    return DocumentStatus(row.version, row.applied, row.unresolved, row.refusal)


def _bounded(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first names, as many as one report may have."""
    size, found = 0, []
    for name in names:
        size += len(name) + 1
        if size > MAX_UNRESOLVED_CHARACTERS:
            break
        found.append(name)
    return tuple(found)

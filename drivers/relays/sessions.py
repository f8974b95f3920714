"""A relay's end of one link: it handles the messages of the link's DPUs, and sends due frames.

`link_membership` decides which DPUs of the link are served. All functions run to their end without waiting: a message
arrives, delivery states change, frames are sent. A link with a backlog gets no further frame until its peer has taken
the backlog, and then one merged delta.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from drivers.relays import delivery_state
from drivers.relays.delivery_state import DeliveryState, Target, Transition
from drivers.relays.frame_cache import FrameCache
from drivers.relays.link_membership import LinkMembership
from drivers.relays.link_networks import RESEND_HEARTBEATS, EncodedNetworks, LinkNetworks
from drivers.relays.network_source import NetworkSource
from drivers.relays.rule_source import RuleSource
from drivers.relays.served_zone import DpuRateLimiter, ServedZone
from drivers.wire import relay_messages
from drivers.wire.agent_messages import Ack, FromAgent, Heartbeat, Hello, NetworkAck, Refusal
from drivers.wire.links import Link
from drivers.wire.protocol import ProtocolError, TableStatus, numbers_of
from drivers.wire.relay_messages import HeartbeatReply, Unserved, Welcome
from projections.field_checks import quoted
from projections.installs.exceptions import DRIFT
from projections.rules.rule import Held

BACKLOG_BYTES = 1024 * 1024
"""Backlog of a link above which it gets no further frames."""


class SessionContext(NamedTuple):
    """The shared context of a relay's sessions. `now` is the loop's clock in seconds, `now_ms` the log's."""

    source: RuleSource
    frame_cache: FrameCache
    now: Callable[[], float]
    now_ms: Callable[[], int]
    rng: random.Random
    heartbeat_s: float
    networks: NetworkSource | None = None
    encoded_networks: EncodedNetworks | None = None
    on_network_status: Callable[[], None] | None = None


def _check_speaks_for(hello: Hello, only: str) -> None:
    """Raises ProtocolError if a link names other DPUs than the one that its certificate allows."""
    other = next((dpu for dpu in hello.dpus if only and dpu != only), None)
    if other is not None:
        raise ProtocolError(
            f"hello.dpus: {quoted(other)} is not {quoted(only)}, the DPU that the link's certificate names"
        )


class Session:
    """The session of one link, which belongs to one zone."""

    def __init__(self, link: Link, zone: ServedZone[Session], context: SessionContext, only: str = "") -> None:
        self.link = link
        self.zone = zone
        self.last_message_at = context.now()
        self.messages = 0
        """Messages received since the last tick."""
        self.sent = 0
        self._context = context
        self._only = only
        self._membership = LinkMembership(zone, context.source, context.rng, link.abort, link.peer)
        self._numbering = self._membership.numbering
        self._delivery_states = self._membership.delivery_states
        self.networks = self._membership.networks = self._link_networks()
        zone.sessions[self] = None

    def handle(self, message: FromAgent) -> None:
        """Handle one message of the agent. Raises ProtocolError, LinkClosed."""
        self.last_message_at = self._context.now()
        match message:
            case Hello():
                self.handle_hello(message)
            case Ack():
                for status in message.statuses:
                    self._handle_ack(status)
                for refusal in message.refusals:
                    self._handle_refusal(refusal)
            case Heartbeat():
                if moved := self._membership.renumbered():  # later reports are by ordinal
                    self._send_welcome(self._membership.attach(moved))
                for status in message.statuses:
                    self._handle_heartbeat(status)
                self._membership.report_again(moved, self._context.now_ms())
                if self.networks is not None:
                    self.networks.handle_statuses(message.networks)
                target = self._target()
                self.link.send(relay_messages.encode(HeartbeatReply(target.epoch, target.version, self.zone.frozen)))
            case NetworkAck() if self.networks is not None:
                self.networks.handle_statuses(message.statuses)
                for refused in message.refusals:
                    self.networks.handle_refusal(refused, self._context.now())
            case NetworkAck():
                raise ProtocolError("network_ack: this relay has sent no network document")
        self.send_due()

    def handle_hello(self, hello: Hello) -> None:
        """Add the DPUs of a Hello that can be served."""
        _check_speaks_for(hello, self._only)
        if hello.zone != self.zone.name:
            raise ProtocolError(
                f"hello.zone: {quoted(hello.zone)} is not {quoted(self.zone.name)}, the zone of this link's first hello"
            )
        self._send_welcome(self._membership.handle_hello(hello, self._context.now_ms()))
        if self.networks is not None:
            self.networks.handle_hello(hello)
        named, now = self._numbering.mask_of(hello.dpus), self._context.now()
        for state, members in list(self._delivery_states.dpus.items()):
            if state.applied and members & named:
                self._limited(self.zone.unsent_version_limiter, members & named, now)

    def send_due(self) -> None:
        """Send the due frames and network documents."""
        if self.networks is not None:
            self.networks.send_due(self._context.now())
        self._membership.follow_stages()
        now = self._context.now()
        for state, dpus in list(self._delivery_states.dpus.items()):
            target = self.zone.target_of(state.stage)
            due = delivery_state.due(state, target, now)
            if due == "nothing" or self.link.backlog > BACKLOG_BYTES or self.zone.is_frozen_now:
                continue
            since = state.sent if due == "delta" else 0
            current = self.zone.current_of(state.stage)
            frame = self._context.frame_cache.frame(self.zone.name, current, since, state.stage)
            if frame.is_snapshot and state.in_flight:
                continue
            if frame.version != target.version:
                self.zone.remember_latest()
            instead = due == "delta" and delivery_state.keeps_up(state)  # the delta is larger than the table
            allowed = (
                self._limited(self.zone.snapshot_limiter, dpus, now) if frame.is_snapshot and not instead else dpus
            )
            if allowed:
                group = b"" if self._numbering.is_all(allowed) else relay_messages.encode_group(allowed)
                self.link.send(frame.data + group if group else frame.data)
                self.sent += 1
                if self.zone.delivery is not None:
                    self.zone.delivery.sent(self.zone.name, frame.version)
                self._delivery_states.change(
                    allowed, partial(delivery_state.after_send, version=frame.version, now=now)
                )

    def note_all_networks(self) -> None:
        """The wanted network documents of all DPUs of the link may have changed."""
        if self.networks is not None:
            self.networks.note_all()

    def states(self) -> Iterator[tuple[DeliveryState, int]]:
        """The delivery states of the link's DPUs, each with its number of DPUs."""
        for state, dpus in self._delivery_states.dpus.items():
            yield state, dpus.bit_count()

    def reported_tables(self) -> dict[str, Held]:
        """The table that each DPU of the link reported last."""
        return self._membership.reported_tables()

    def end(self) -> None:
        """End the session after its link has closed."""
        self.zone.sessions.pop(self, None)
        self._membership.end()

    def _link_networks(self) -> LinkNetworks | None:
        context, membership = self._context, self._membership
        if context.networks is None or context.encoded_networks is None or context.on_network_status is None:
            return None
        return LinkNetworks(
            self.link,
            self.zone,
            membership.numbering,
            context.encoded_networks,
            context.networks,
            is_served=membership.is_served,
            on_status=context.on_network_status,
            rng=context.rng,
            resend_s=RESEND_HEARTBEATS * context.heartbeat_s,
        )

    # --- messages of DPUs ---------------------------------------------------------------------------------------------

    def _handle_ack(self, status: TableStatus) -> None:
        epoch, digest, version = self._context.source.epoch, self.zone.digest, status.applied
        moves = self._delivery_states.change(
            status.dpus, lambda s: delivery_state.after_ack(s, status, epoch, digest(version, s.stage))
        )
        self._record(moves)

    def _handle_heartbeat(self, status: TableStatus) -> None:
        epoch, digest, version = self._context.source.epoch, self.zone.digest, status.applied
        lost_before = float("-inf") if self.link.backlog else self._context.now() - 2 * self._context.heartbeat_s
        moves = self._delivery_states.change(
            status.dpus,
            lambda s: delivery_state.after_heartbeat(
                s, status, epoch, digest(version, s.stage), lost_before=lost_before
            ),
        )
        self._record(moves)

    def _handle_refusal(self, refusal: Refusal) -> None:
        now, jitter = self._context.now(), self._context.rng.uniform(0.5, 1.0)
        moves = self._delivery_states.change(
            refusal.status.dpus, lambda s: delivery_state.after_refusal(s, refusal, now, jitter)
        )
        self._record(moves)
        for move in moves:
            if move.after.failures > move.before.failures:
                for name in self._numbering.names_of(move.dpus):
                    self.zone.pending.refused[name] = f"{refusal.code.name}: {refusal.reason}"

    def _record(self, moves: list[Transition]) -> None:
        for move in moves:
            before, after = move.before, move.after
            if before == after:
                continue
            if after.applied not in (before.applied, before.sent, *before.in_flight):
                self._limited(self.zone.unsent_version_limiter, move.dpus, self._context.now())
            self.zone.record(move, self._numbering.bitmap_of(move.dpus), self._context.now_ms())
            for name in self._numbering.names_of(move.dpus) if self._went_back(before, after) else ():
                self.zone.pending.regressed[name] = after.applied
                self.zone.ahead_of_log.pop(name, None)
            if delivery_state.has_drifted(before, after):
                drift = f"{DRIFT}: the device no longer has the rules of version {after.applied}"
                self.zone.pending.refused |= dict.fromkeys(self._numbering.names_of(move.dpus), drift)

    def _went_back(self, before: DeliveryState, after: DeliveryState) -> bool:
        """Whether a DPU's table is older than before: an older version, or one of an earlier log generation."""
        if after.epoch > before.epoch:
            return not self._context.source.knows(before.epoch, before.applied)
        return (after.epoch, after.applied) < (before.epoch, before.applied)

    def _limited(self, limiter: DpuRateLimiter, dpus: int, now: float) -> int:
        """The DPUs among these with a token; the others are delayed until they have one."""
        numbers = numbers_of(dpus)
        waits = limiter.wait_s(self._numbering.ordinals_of(numbers), now)
        for number, wait_s in zip(numbers, waits.tolist(), strict=True):
            if wait_s:
                dpus &= ~(1 << number)
                self._delivery_states.change(1 << number, partial(delivery_state.after_wait, until=now + wait_s))
        return dpus

    def _target(self) -> Target:
        """The target of the link's DPUs; that of DPUs without a stage if they have different ones."""
        stages = {state.stage for state in self._delivery_states.dpus}
        return self.zone.target_of(stages.pop() if len(stages) == 1 else 0)

    def _send_welcome(self, unserved: Sequence[Unserved]) -> None:
        target, beat_ms = self._target(), round(self._context.heartbeat_s * 1000)
        welcome = Welcome(target.epoch, target.version, self.zone.frozen, beat_ms, unserved)
        self.link.send(relay_messages.encode(welcome))

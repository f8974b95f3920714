"""The DPUs of a link that can be served, and their delivery states.

A Hello names DPUs, and a later Hello may name them again. A DPU that is not registered in the log, or that has a table
from a later log generation, is told when to retry. A DPU that another link served is taken over from that link. The
table in a Hello is compared with the DPU's previous table and with the log: a DPU whose table is older than before, or
newer than the log, is reported.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from drivers.relays import delivery_state
from drivers.relays.delivery_state import DeliveryState, DeliveryStates
from drivers.relays.link_networks import LinkNetworks
from drivers.relays.numbering import Numbering
from drivers.relays.rule_source import RuleSource
from drivers.relays.served_zone import ServedZone
from drivers.wire.agent_messages import NO_DIGEST, Hello
from drivers.wire.protocol import TableStatus, numbers_of, union
from drivers.wire.relay_messages import Unserved
from projections.field_checks import quoted
from projections.rules.rule import Held

logger = logging.getLogger(__name__)

RETRY_UNKNOWN_MS = 2_000
"""Mean time until the retry of an unregistered DPU."""


class LinkMembership:
    """The DPUs of one link to `peer`. `on_empty` is called when another link has taken over the last of them."""

    def __init__(
        self, zone: ServedZone[Any], source: RuleSource, rng: random.Random, on_empty: Callable[[], None], peer: str
    ) -> None:
        self.numbering = Numbering()
        self.delivery_states = DeliveryStates()
        self._zone = zone
        self._source = source
        self._rng = rng
        self._on_empty = on_empty
        self._peer = peer
        self._registrations: object = None
        self._cohorts: object = None
        self.networks: LinkNetworks | None = None
        """The network documents of the link's DPUs, if the relay serves any."""

    def is_served(self, dpu: str) -> bool:
        """Whether this link serves a DPU now."""
        return self._zone.links.get(dpu, (None, 0))[0] is self

    def note_network(self, number: int) -> None:
        """The wanted network document of a DPU may have changed."""
        if self.networks is not None:
            self.networks.note(number)

    def handle_hello(self, hello: Hello, now_ms: int) -> list[Unserved]:
        """Add the DPUs of a Hello; returns the unserved ones. Raises ProtocolError if there are too many."""
        named = self.numbering.add(hello.dpus)
        self.follow_stages()
        unserved = self.attach(hello.dpus)
        return unserved + self._add(named & ~union(part.dpus for part in unserved), hello.statuses, now_ms)

    def renumbered(self) -> list[str]:
        """DPUs whose ordinal in the log has changed, or that have left the log, since the last call."""
        registrations = self._source.registrations(self._zone.name)
        if registrations == self._registrations:  # the common case, at every heartbeat
            return []
        self._registrations = registrations
        return self.numbering.renumbered(partial(self._source.ordinals_of, self._zone.name))

    def attach(self, dpus: Sequence[str]) -> list[Unserved]:
        """Give these DPUs their ordinals from the log. Returns the DPUs that the log does not know, as unserved."""
        unknown = []
        for dpu, ordinal in zip(dpus, self._source.ordinals_of(self._zone.name, dpus), strict=True):
            number = self.numbering.number_of(dpu)
            self.numbering.set_ordinal(number, ordinal)
            link, elsewhere = self._zone.links.pop(dpu, (self, number))
            if link is not self:
                link.detach(elsewhere)
            if ordinal is None:
                unknown.append(dpu)
                self._zone.ahead_of_log.pop(dpu, None)
            else:
                self._zone.links[dpu] = (self, number)
        if not unknown:
            return []
        mask = self.numbering.mask_of(unknown)
        self.delivery_states.drop(mask)
        others = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        names = f"{quoted(unknown[0])}{others}"
        reason = f"dpu: {names} is not registered in zone {quoted(self._zone.name)} on this relay"
        return [Unserved(mask, reason, self._retry_ms())]

    def report_again(self, dpus: Sequence[str], now_ms: int) -> None:
        """Report the tables of these DPUs under their new ordinals, although the tables have not changed."""
        mask = self.numbering.mask_of(dpus)
        for state, members in self.delivery_states.dpus.items():
            if members & mask:
                self._report(members & mask, state, now_ms, state.stage)

    def detach(self, number: int) -> None:
        """Remove a DPU that another link has taken over."""
        self.delivery_states.drop(1 << number)
        self.numbering.set_ordinal(number, None)
        if not self.delivery_states.dpus:
            self._on_empty()

    def end(self) -> None:
        """End the link: remove its DPUs from the zone, and store the last reported versions of served DPUs."""
        held = self.reported_tables()
        for name in self.numbering.names:
            if self.is_served(name):
                del self._zone.links[name]
                self._zone.ahead_of_log.pop(name, None)  # another relay may have a newer report by now
                if name in held:
                    self._zone.last_reported[name] = (held[name].epoch, held[name].version)

    def reported_tables(self) -> dict[str, Held]:
        """The table that each DPU reported last."""
        return {
            name: Held(state.epoch, state.applied, state.digest)
            for state, dpus in self.delivery_states.dpus.items()
            for name in self.numbering.names_of(dpus)
        }

    def _add(self, dpus: int, statuses: Sequence[TableStatus], now_ms: int) -> list[Unserved]:
        """Set the delivery states of these DPUs from their Hello. DPUs with a table of a later log generation are
        unserved.
        """
        target, unserved, left = self._zone.target, [], dpus
        nothing = TableStatus(dpus, 0, 0, 0, 0, NO_DIGEST)
        for status in (*statuses, nothing):
            members = status.dpus & left
            if not members:
                continue
            left &= ~members
            self._note_ahead_of_log(members, status)
            if status.epoch > target.epoch:
                reason = f"epoch: {status.epoch} is later than epoch {target.epoch} of this relay's log"
                self.delivery_states.drop(members)
                unserved.append(Unserved(members, reason, self._retry_ms()))
                continue
            self._note_regressions(members, (status.epoch, status.applied))
            for stage, part in self._by_stage(members):
                known = self._zone.digest(status.applied, stage)
                state = delivery_state.arrived(status, self._zone.target_of(stage), known, stage)
                self.delivery_states.put(part, state)
                self._report(part, status, now_ms, stage)
        return unserved

    def follow_stages(self) -> None:
        """Give each DPU the stage of a staged change that it belongs to, as far as the log was read."""
        cohorts = self._zone.follow_stages()
        if cohorts is self._cohorts:  # the common case, before every frame
            return
        self._cohorts = cohorts
        for state, members in [*self.delivery_states.dpus.items()]:
            for stage, part in self._by_stage(members):
                if stage != state.stage:
                    self.delivery_states.change(part, partial(DeliveryState._replace, stage=stage))

    def _by_stage(self, dpus: int) -> Iterator[tuple[int, int]]:
        """The stages of these DPUs, each with its DPUs."""
        rest = dpus
        stages: dict[int, int] = {}
        for number in numbers_of(dpus) if self._zone.cohorts else ():
            stage = self._zone.cohorts.get(self.numbering.name_of(number), 0)
            stages[stage] = stages.get(stage, 0) | 1 << number
            rest &= ~(1 << number)
        if rest:
            stages[0] = stages.get(0, 0) | rest
        yield from stages.items()

    def _report(self, dpus: int, has: TableStatus | DeliveryState, now_ms: int, stage: int = 0) -> None:
        """Report the tables of these DPUs if their digest equals the digest of that version in the log."""
        if has.epoch == self._zone.target.epoch and has.digest == self._zone.digest(has.applied, stage):
            levels = (has.received, has.applied, has.in_hardware)
            self._zone.report_levels(levels, self.numbering.bitmap_of(dpus), now_ms, stage)

    def _note_regressions(self, dpus: int, has: tuple[int, int]) -> None:
        """Record the DPUs among these that returned with an older table than before."""
        had = {
            number: (state.epoch, state.applied)
            for state, members in self.delivery_states.dpus.items()
            for number in numbers_of(members & dpus)
        }
        for number in numbers_of(dpus):
            name = self.numbering.name_of(number)
            before = self._zone.last_reported.pop(name, (0, 0))
            if has < max(before, had.get(number, (0, 0))):
                self._zone.pending.regressed[name] = has[1]

    def _note_ahead_of_log(self, dpus: int, status: TableStatus) -> None:
        """Record the DPUs with tables that are newer than the log, and remove those that have recovered."""
        ahead, has = self._zone.ahead_of_log, (status.epoch, status.applied)
        if self._source.knows(*has):
            for name in self.numbering.names_of(dpus) if ahead else ():
                ahead.pop(name, None)
            return
        for name in self.numbering.names_of(dpus):
            ahead[name] = has
        logger.warning(
            "DPUs reported newer tables than the restored log has; compare both with `dpuplane verify`",
            extra={
                "peer": self._peer,
                "zone": self._zone.name,
                "dpus": dpus.bit_count(),
                "epoch": has[0],
                "version": has[1],
            },
        )

    def _retry_ms(self) -> int:
        return round(RETRY_UNKNOWN_MS * self._rng.uniform(0.5, 1.5))

"""The relay: it sends the rule tables of the log to the DPUs of its zones, and reports the DPUs' tables to the log.

A relay folds the log itself, so it needs no other process, and any number of relays can serve one zone. After each
change of the log it computes each zone's table, encodes one frame per rule list and base version, and sends the same
bytes to every link. A pass over all links yields to other tasks every few milliseconds, and the next pass takes all
changes that were folded since. The cost of a pass hardly depends on the number of changes. Under load, a pause follows
each pass, so that the process has time to read the log. The pause is at most the time that the oldest change had waited
for the pass. A single change hardly waits, so almost no pause follows it.

A DPU resumes at any relay from its (epoch, version, digest): versions are positions in the log and are the same for
every relay. The DPUs' tables are reported to the log as aggregates (`reports`), never one by one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from drivers.relays.admission import LinkAdmission
from drivers.relays.delivery_hooks import DeliveryHooks
from drivers.relays.frame_cache import FrameCache
from drivers.relays.latency import LatencyHistogram
from drivers.relays.link_networks import EncodedNetworks
from drivers.relays.network_reports import NetworkReport
from drivers.relays.network_source import NetworkSource
from drivers.relays.rule_source import RuleSource
from drivers.relays.served_zone import ServedZone, log_freezes
from drivers.relays.sessions import Session, SessionContext
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Hello
from drivers.wire.links import Link, LinkClosed
from drivers.wire.protocol import ProtocolError
from drivers.wire.relay_messages import GoAway
from eventstore.errors import PermanentError, TransientError
from projections.field_checks import quoted
from projections.installs.rows import Level
from projections.rules.rule import Held

logger = logging.getLogger(__name__)

SLICE_S = 0.003
REST_TIMES = 2.0
"""Length of the pause after a pass over all links, as a multiple of the duration of the pass: about the time that the
process needs to handle the answers of the DPUs."""
REST_MAX_S = 0.25
"""Longest pause after a pass."""
TICK_S = 1.0
GATHER_S = 0.15
"""Messages of DPUs within this time are reported together."""
REPORTS_AT_ONCE = 16
NETWORK_REPORT_S = 0.5
"""Interval of a zone's reports about network documents."""
PIECE_BYTES = 4096
"""Bytes that count as one message: a large message counts as several."""
TURN_PIECES = 16
"""Consecutive messages of one link before the loop yields."""


class RelaySettings(NamedTuple):
    """Settings of a relay."""

    heartbeat_s: float = 10.0
    """Interval of an agent's heartbeats. A link without a message for three times as long is closed."""
    hello_s: float = 10.0
    """Timeout of a new link's Hello."""
    handshakes_per_second: float = 200.0
    """New links accepted per second; further ones are told when to retry."""
    handshakes_at_once: int = 400
    """Burst of new links after an idle time."""
    messages_per_second: int = 1_000
    """Limit of a link's messages per second, averaged over a tick; a link above it is closed."""
    zones: frozenset[str] = frozenset()
    """Zones served; empty for all."""


DEFAULTS = RelaySettings()


class Relay:
    """Serves links until `run` is cancelled."""

    def __init__(
        self,
        source: RuleSource,
        *,
        name: str,
        now_ms: Callable[[], int],
        rng: random.Random,
        settings: RelaySettings = DEFAULTS,
        delivery: DeliveryHooks | None = None,
        networks: NetworkSource | None = None,
    ) -> None:
        self.name = name
        self.latency = {level: LatencyHistogram() for level in Level}
        self.zones: dict[str, ServedZone[Session]] = {}
        self.closed_for: dict[str, int] = {"malformed": 0, "silent": 0, "flooding": 0}
        loop = asyncio.get_running_loop()
        self.frame_cache = FrameCache(source)
        self.admission = LinkAdmission(
            settings.handshakes_per_second, settings.handshakes_at_once, now=loop.time, rng=rng
        )
        self._to_report = asyncio.Event()
        self._source = source
        self._settings = settings
        self._delivery = delivery
        self._context = SessionContext(source, self.frame_cache, loop.time, now_ms, rng, settings.heartbeat_s)
        self._networks = networks
        self._networks_to_report = asyncio.Event()
        if networks is not None:
            encoded = EncodedNetworks(networks)
            self._context = self._context._replace(
                networks=networks, encoded_networks=encoded, on_network_status=self._networks_to_report.set
            )

    async def run(self) -> None:
        """Distribute tables and append reports until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._distribute())
            tasks.create_task(self._tick())
            tasks.create_task(self._report())
            if self._networks is not None:
                tasks.create_task(self._distribute_networks(self._networks))
                tasks.create_task(self._report_networks(self._networks))

    def admit(self, who: str, *, is_one_dpu: bool) -> float:
        """Return 0 to admit a new link of an identity, or the seconds until a retry."""
        return self.admission.admit(who, is_one_dpu=is_one_dpu)

    async def serve(self, link: Link, only: str = "") -> None:
        """Serve one link until it ends. An error of the peer affects its own link only.

        With `only`, the link may speak for this DPU and for no other: the certificate of the link names this DPU.
        """
        session: Session | None = None
        try:
            session = await self._open_session(link, only)
            await self._receive(session)
        except ProtocolError as error:
            self._send_go_away(link, str(error), "malformed")
        except TimeoutError:
            self._send_go_away(link, f"hello: must arrive within {self._settings.hello_s:g} s", "silent")
        except LinkClosed:
            pass
        finally:
            if session is not None:
                self._end_session(session)
            await link.close()

    def devices(self) -> dict[str, dict[str, Held]]:
        """The table of each connected DPU, by zone and name."""
        return {name: self.zone_devices(name) for name in sorted(self.zones)}

    def dpus_ahead_of_log(self) -> int:
        """The number of DPUs whose tables are newer than the log, because the log was restored from an older backup."""
        return sum(len(zone.ahead_of_log) for zone in self.zones.values())

    def zone_devices(self, zone: str) -> dict[str, Held]:
        """The table of each connected DPU of one zone."""
        held: dict[str, Held] = {}
        for session in self.zones[zone].sessions if zone in self.zones else ():
            held.update(session.reported_tables())
        return held

    # --- links --------------------------------------------------------------------------------------------------------

    async def _open_session(self, link: Link, only: str) -> Session:
        async with asyncio.timeout(self._settings.hello_s):
            message = agent_messages.decode(await link.receive())
        if not isinstance(message, Hello):
            raise ProtocolError("message: the first message must be a hello")
        served = self._settings.zones
        if served and message.zone not in served:
            raise ProtocolError(
                f"hello.zone: {quoted(message.zone)} is not served by this relay, which serves "
                f"{', '.join(sorted(served))}"
            )
        zone = self.zones.get(message.zone)
        if zone is None:
            zone = self.zones[message.zone] = ServedZone(message.zone, self._source, self.latency, self._delivery)
        session = Session(link, zone, self._context, only)
        try:
            session.handle(message)
        except BaseException:
            self._end_session(session)
            raise
        return session

    async def _receive(self, session: Session) -> None:
        """Handle a link's messages. Buffered messages arrive without a wait, so the loop yields explicitly."""
        since_turn = 0
        while True:
            self._schedule_report(session.zone)
            data = await session.link.receive()
            session.handle(agent_messages.decode(data))
            pieces = 1 + len(data) // PIECE_BYTES
            session.messages += pieces
            since_turn += pieces
            if since_turn >= TURN_PIECES:
                await asyncio.sleep(0)
                since_turn = 0

    def _end_session(self, session: Session) -> None:
        session.end()
        zone = session.zone
        self._schedule_report(zone)
        if not zone.sessions and not zone.last_reported:  # no registered DPU was ever served
            del self.zones[zone.name]

    def _send_go_away(self, link: Link, reason: str, kind: str) -> None:
        self.closed_for[kind] += 1
        logger.info("link closed: %s", reason, extra={"peer": link.peer})
        retry_ms = round(self._context.rng.uniform(5_000, 15_000))
        with suppress(LinkClosed):
            link.send(relay_messages.encode(GoAway(reason, retry_ms)))

    # --- distribution -------------------------------------------------------------------------------------------------

    async def _distribute(self) -> None:
        while True:
            if await self._source.changed():
                began, began_ms = self._context.now(), self._context.now_ms()
                frozen = {zone.name for zone in self.zones.values() if zone.frozen}
                changed = [zone for zone in list(self.zones.values()) if zone.refresh()]
                log_freezes(changed, frozen)
                if self._delivery is not None:
                    self._delivery.distributing({zone.name: zone.current.version for zone in changed})
                await self._send_due(session for zone in changed for session in list(zone.sessions))
                late_s = max((began_ms - zone.current.earliest_ms for zone in changed), default=0) / 1000
                await asyncio.sleep(min(REST_TIMES * (self._context.now() - began), REST_MAX_S, late_s))

    async def _send_due(self, sessions: Iterable[Session]) -> None:
        """Send all due frames, in slices that yield to other tasks."""
        began = self._context.now()
        for session in sessions:
            with suppress(LinkClosed):  # the link's `serve` handles its end
                session.send_due()
            if self._context.now() - began > SLICE_S:
                await asyncio.sleep(0)
                began = self._context.now()

    # --- network documents --------------------------------------------------------------------------------------------

    async def _distribute_networks(self, source: NetworkSource) -> None:
        while True:
            await source.changed()
            for zone in list(self.zones.values()):
                zone.network_revision, names = source.since(zone.name, zone.network_revision)
                if names is None:
                    for session in zone.sessions:
                        session.note_all_networks()
                for link, number in filter(None, map(zone.links.get, names or ())):
                    link.note_network(number)
                if names is None or names:
                    await self._send_due(list(zone.sessions))

    async def _report_networks(self, source: NetworkSource) -> None:
        """Report the statuses of network documents, at most once per interval and zone."""
        while True:
            await self._networks_to_report.wait()
            await asyncio.sleep(NETWORK_REPORT_S)
            self._networks_to_report.clear()
            for zone in list(self.zones.values()):
                links = [each.networks for each in zone.sessions if each.networks is not None]
                if not any(link.has_unreported for link in links):
                    continue
                report = NetworkReport(links)
                if report:
                    await self._report_network(source, zone.name, report)

    async def _report_network(self, source: NetworkSource, zone: str, report: NetworkReport) -> None:
        try:
            await source.report(report.event(zone, self.name, self._context.now_ms()))
        except TransientError as error:
            logger.warning("zone %s: network report not acknowledged, retrying: %s", zone, error)
            self._networks_to_report.set()
        except PermanentError as error:  # a repeated append would be refused again
            logger.error("zone %s: network report dropped, the log rejected it: %s", zone, error)
            report.landed()
        else:
            report.landed()

    # --- timers -------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            sessions = [session for zone in self.zones.values() for session in zone.sessions]
            for session in sessions:
                self._check(session)
            await self._send_due(sessions)

    def _check(self, session: Session) -> None:
        """Close a link that is silent too long or sends too much."""
        silent_s = self._context.now() - session.last_message_at
        if session.messages > self._settings.messages_per_second * TICK_S:
            reason = f"messages: {session.messages} in {TICK_S} s are more than {self._settings.messages_per_second}/s"
            self._send_go_away(session.link, reason, "flooding")
            session.link.abort()
        elif silent_s > 3 * self._settings.heartbeat_s:
            self._send_go_away(session.link, f"heartbeat: none received for {silent_s:.0f} s", "silent")
            session.link.abort()
        session.messages = 0

    def _schedule_report(self, zone: ServedZone[Session]) -> None:
        if zone.pending:
            self._to_report.set()

    async def _report(self) -> None:
        while True:
            if not any(zone.pending for zone in self.zones.values()):
                self._to_report.clear()
                await self._to_report.wait()
            await asyncio.sleep(GATHER_S)
            due = [zone for zone in self.zones.values() if zone.pending.is_due(self._context.now())]
            for start in range(0, len(due), REPORTS_AT_ONCE):
                async with asyncio.TaskGroup() as tasks:
                    for zone in due[start : start + REPORTS_AT_ONCE]:
                        tasks.create_task(self._report_zone(zone))

    async def _report_zone(self, zone: ServedZone[Session]) -> None:
        taken = zone.pending.take(self._context.now())
        count = self._source.dpu_count(zone.name)
        event = taken.event(zone.name, self.name, self._source.epoch, count, self._context.now_ms())
        try:
            await self._source.report(event)
        except TransientError as error:
            logger.warning("zone %s: report append not acknowledged, retrying: %s", zone.name, error)
            zone.pending.put_back(taken)
        except PermanentError as error:  # a repeated append would be refused again
            logger.error("zone %s: report dropped, the log rejected it: %s", zone.name, error)

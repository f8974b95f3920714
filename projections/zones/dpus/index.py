"""Index of the DPUs of a partition, derived from their rows: open steps, ordinals, queues, and the counts for limits.

Each zone has two queues of DPUs that wait for an install. The retry queue goes first: its DPUs failed an install, and
their nodes are already out of service. DPUs are in the order in which they became Pending.
"""

from __future__ import annotations

from projections.zones.dpus.certificates import FAILURES_UNTIL_STUCK, Visits, end_ms
from projections.zones.dpus.install_interfaces import has_renewals
from projections.zones.dpus.phases import ERROR, INSTALLING, PENDING, READY
from projections.zones.rows import Dpu


class ZoneDpus:
    """The DPUs of one zone. For each node out of service, `unavailable` counts the DPUs that require it. `phases`
    counts the DPUs by phase, for display. `stuck` contains the DPUs that need an operator."""

    __slots__ = ("installing", "names", "phases", "queue", "retry_queue", "stuck", "unavailable", "used")

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.used = 0
        self.installing = 0
        self.unavailable: dict[str, int] = {}
        self.retry_queue: dict[str, None] = {}
        self.queue: dict[str, None] = {}
        self.phases: dict[str, int] = {}
        self.stuck: dict[str, None] = {}

    @property
    def lowest_free(self) -> int:
        """The lowest unused ordinal."""
        return (~self.used & (self.used + 1)).bit_length() - 1


class DpuIndex:
    """The DPUs of all zones of the partition, and the DPUs with an open or running step, in no particular order; the
    visits to the devices of Ready DPUs, and the number of certificates of devices by the day on which they end.

    `registrations` is replaced by a new object whenever a DPU gets or loses an ordinal.
    """

    def __init__(self) -> None:
        self.registrations = object()
        self.zones: dict[str, ZoneDpus] = {}
        self.open: dict[str, None] = {}
        self.running: dict[str, None] = {}
        self.visits = Visits()
        self.certificate_ends: dict[int, int] = {}

    def zone(self, zone: str) -> ZoneDpus:
        """The index of a zone; a new empty one, which is not stored, if it has no DPU."""
        return self.zones.get(zone) or ZoneDpus()

    def replace(self, name: str, old: Dpu | None, new: Dpu | None) -> None:
        """Replace a row. A DPU keeps its place in the queue as long as the offset at which it became Pending is the
        same."""
        if old is None or new is None or (old.zone, old.ordinal) != (new.zone, new.ordinal):
            self.registrations = object()
        if old is not None:
            stays = new is not None and old.phase == new.phase == PENDING and old.since == new.since
            self._discard(name, old, stays)
        if new is not None:
            self._add(name, new)

    def _add(self, name: str, dpu: Dpu) -> None:
        zone = self.zones.get(dpu.zone)
        if zone is None:
            zone = self.zones[dpu.zone] = ZoneDpus()
        taken = zone.names.setdefault(dpu.ordinal, name)
        assert taken == name, f"{name}: ordinal {dpu.ordinal} of {dpu.zone} is that of {taken}"
        zone.used |= 1 << dpu.ordinal
        zone.installing += dpu.phase in INSTALLING
        zone.phases[dpu.phase] = zone.phases.get(dpu.phase, 0) + 1
        if is_stuck(dpu):
            zone.stuck[name] = None
        if dpu.effect:
            host = host_of(name, dpu)
            zone.unavailable[host] = zone.unavailable.get(host, 0) + 1
        if dpu.phase == PENDING:
            (zone.retry_queue if dpu.effect else zone.queue)[name] = None
        if dpu.step_state == "open":
            self.open[name] = None
        elif dpu.step_state == "running":
            self.running[name] = None
        self.visits.add(name, dpu)
        if (ends_ms := _certificate_end_ms(dpu)) is not None:
            self.certificate_ends[ends_ms] = self.certificate_ends.get(ends_ms, 0) + 1

    def _discard(self, name: str, dpu: Dpu, stays: bool) -> None:
        zone = self.zones[dpu.zone]
        del zone.names[dpu.ordinal]
        zone.used &= ~(1 << dpu.ordinal)
        zone.installing -= dpu.phase in INSTALLING
        zone.phases[dpu.phase] -= 1
        if not zone.phases[dpu.phase]:
            del zone.phases[dpu.phase]
        zone.stuck.pop(name, None)
        if dpu.effect:
            host = host_of(name, dpu)
            zone.unavailable[host] -= 1
            if not zone.unavailable[host]:
                del zone.unavailable[host]
        if dpu.phase == PENDING and not stays:
            del (zone.retry_queue if dpu.effect else zone.queue)[name]
        self.open.pop(name, None)
        self.running.pop(name, None)
        self.visits.discard(name, dpu)
        if (ends_ms := _certificate_end_ms(dpu)) is not None:
            self.certificate_ends[ends_ms] -= 1
            if not self.certificate_ends[ends_ms]:
                del self.certificate_ends[ends_ms]
        if not zone.names:
            del self.zones[dpu.zone]


def host_of(name: str, dpu: Dpu) -> str:
    """The unit of the limit on unavailable nodes: the DPU's node, or the DPU itself if it names none."""
    return dpu.node or f"/{name}"


def is_stuck(dpu: Dpu) -> bool:
    """Whether a DPU needs an operator: its step failed, it is paused, or it was swapped for another card.

    A Ready DPU serves while visits to its device fail, and most of these failures end by themselves. It needs an
    operator if one of them needs a person, or after several.
    """
    if dpu.phase == READY:
        has_failed = dpu.failed.operator > 0 or dpu.failures >= FAILURES_UNTIL_STUCK
    else:
        has_failed = dpu.phase == ERROR or dpu.failures > 0
    return has_failed or dpu.paused or dpu.swapped


def _certificate_end_ms(dpu: Dpu) -> int | None:
    """The end of the certificate of a device whose interface has one. Facts of a former address stay in the row."""
    return end_ms(dpu) if has_renewals(dpu.bmc_address) else None

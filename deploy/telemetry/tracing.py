"""Traces a command from the API to the devices with OpenTelemetry: `pip install 'dpuplane[otel]'`.

    call -> append -> fold -> forward -> fold of fleet -> relay -> device

Between processes, the trace context is in the record's headers. Within a process, spans are matched by the record's
content: a forward by its range of offsets, a frame by its version. Traces of many records or zones are limited to the
first few.

Off by default. When enabled, a share of the calls is traced, and all calls that their callers trace.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from eventstore.log import FLEET, ZONES, Headers, Partition, Record
from projections.installs.rows import Level
from schemas.events import Event, MembershipChanged

HEADER = "traceparent"
TRACES_MAX = 8
"""Maximum number of traces of one record or frame. Further traces are not continued."""
APPENDS_MAX = 32
"""Maximum traced appends of one call."""
ZONES_MAX = 16
"""Maximum zones of one trace."""
KEPT_MAX = 256
"""Maximum traced records that are kept per partition for later spans, and maximum zones whose traced versions are
kept."""
VERSIONS_MAX = 16
"""Maximum traced versions of a zone."""
CALLS_PER_S = 50
"""Maximum traced calls per second, whatever callers request."""

_PROPAGATOR = TraceContextTextMapPropagator()
_appends_left: ContextVar[list[int] | None] = ContextVar("appends_left", default=None)


class SpanRecorder:
    """Records spans of traced commands in one process. Implements `replicas.tracing`, `commands.rpc.middleware`,
    `relays.delivery_hooks`.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._folded: dict[Partition, deque[tuple[int, SpanContext]]] = {}
        self._decided: list[tuple[int, SpanContext]] = []
        self._awaited_versions: OrderedDict[str, dict[int, _AwaitedVersion]] = OrderedDict()
        self._second, self._calls = 0, 0

    @contextmanager
    def call(self, method: str, metadata: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """A span around a call of the API."""
        if not self._may_record():
            yield
            return
        given = next((value for key, value in metadata if key == HEADER), "")
        parent = _parsed(given.encode() if isinstance(given, str) else given)
        with self._tracer.start_as_current_span(method, _under(parent), SpanKind.SERVER):
            left = _appends_left.set([APPENDS_MAX])
            try:
                yield
            finally:
                _appends_left.reset(left)

    def on_append(self, partition: Partition, event: Event) -> _Append | None:
        """Start the span of an append. Its parents are the traced call, or the traced records that a forward
        carries."""
        if isinstance(event, MembershipChanged):
            source = Partition(ZONES, event.cause_partition)
            parents = self._folded_between(source, event.from_offset, event.to_offset)
            name = f"forward {source}"
        else:
            current, left = trace.get_current_span(), _appends_left.get()
            if left is None or left[0] <= 0 or not current.is_recording():
                return None
            left[0] -= 1
            parents, name = [current.get_span_context()], f"append {partition}"
        if not parents:
            return None
        about = {"dpuplane.partition": str(partition), "dpuplane.event": type(event).__name__}
        return _Append([self._begin(name, parent, SpanKind.PRODUCER, about) for parent in parents])

    def on_fold(self, partition: Partition, records: Sequence[Record]) -> None:
        """Record a span for the fold of each traced record. Later spans of its effects belong to the same trace."""
        for record in records:
            for parent in _parents(record.headers) if record.headers else ():
                about = {"dpuplane.partition": str(partition), "dpuplane.offset": record.offset}
                span = self._begin(f"fold {partition}", parent, SpanKind.CONSUMER, about)
                span.end()
                kept = self._folded.setdefault(partition, deque(maxlen=KEPT_MAX))
                kept.append((record.offset, span.get_span_context()))
                if partition.topic == FLEET and len(self._decided) < KEPT_MAX:
                    self._decided.append((record.offset, span.get_span_context()))

    def distributing(self, versions: Mapping[str, int]) -> None:
        """See DeliveryHooks: a relay has read all folded changes, which gave these zones a new version."""
        decided, self._decided = self._decided, []
        for offset, parent in decided:
            for zone in [zone for zone, version in versions.items() if version > offset][:ZONES_MAX]:
                self._await(zone, versions[zone], parent)

    def _await(self, zone: str, version: int, parent: SpanContext) -> None:
        awaited = self._awaited_versions.setdefault(zone, {})
        awaited.setdefault(version, _AwaitedVersion(zone, version)).take_in(parent)
        self._awaited_versions.move_to_end(zone)
        if len(awaited) > VERSIONS_MAX:
            awaited.pop(min(awaited)).end()
        if len(self._awaited_versions) > KEPT_MAX:
            for old in self._awaited_versions.popitem(last=False)[1].values():
                old.end()

    def sent(self, zone: str, version: int) -> None:
        """See DeliveryHooks. The first frame that leads to this version starts the devices' spans."""
        for awaited in self._awaited_versions.get(zone, {}).values():
            if awaited.version <= version and not awaited.devices:
                awaited.send(self._tracer)

    def reached(self, zone: str, version: int, level: Level) -> None:
        """See DeliveryHooks. The first DPU with this version in hardware ends the trace."""
        waiting = self._awaited_versions.get(zone, {})
        for awaited in [found for found in waiting.values() if found.version <= version and found.devices]:
            awaited.reach(level)
            if level is Level.IN_HARDWARE:
                waiting.pop(awaited.version).end()

    def _may_record(self) -> bool:
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second, self._calls = second, 0
        self._calls += 1
        return self._calls <= CALLS_PER_S

    def _folded_between(self, partition: Partition, start: int, end: int) -> list[SpanContext]:
        kept = self._folded.get(partition, ())
        return [context for offset, context in kept if start <= offset < end][:TRACES_MAX]

    def _begin(self, name: str, parent: SpanContext, kind: SpanKind, about: Mapping[str, Any]) -> Span:
        return self._tracer.start_span(name, _under(parent), kind, about)


class _Append:
    """The append of one record, in every trace that it belongs to."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self.headers: Headers = tuple((HEADER, _text(span.get_span_context())) for span in spans)

    def finish(self, error: BaseException | None) -> None:
        for span in self._spans:
            if error is not None:
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            span.end()


class _AwaitedVersion:
    """A version of a zone's table that results from traced records. It has the trace contexts of these records, and the
    open spans of the devices after the first frame that leads to this version."""

    def __init__(self, zone: str, version: int) -> None:
        self.version = version
        self.devices: list[Span] = []
        self._zone = zone
        self._about: dict[str, str | int] = {"dpuplane.zone": zone, "dpuplane.version": version}
        self._parents: list[SpanContext] = []
        self._levels: set[Level] = set()

    def take_in(self, parent: SpanContext) -> None:
        """Add a trace that led to this version."""
        if len(self._parents) < TRACES_MAX:
            self._parents.append(parent)

    def send(self, tracer: Tracer) -> None:
        """Start the devices' spans at the first frame."""
        for parent in self._parents:
            relay = tracer.start_span(f"relay {self._zone}", _under(parent), SpanKind.PRODUCER, self._about)
            under = _under(relay.get_span_context())
            self.devices.append(tracer.start_span(f"device {self._zone}", under, SpanKind.CONSUMER, self._about))
            relay.end()

    def reach(self, level: Level) -> None:
        """Record that a device reached a level; only the first device is recorded per level."""
        if level not in self._levels:
            self._levels.add(level)
            for device in self.devices:
                device.add_event(level.name.lower())

    def end(self) -> None:
        """End the spans: a device reached the version, or the version is evicted."""
        for device in self.devices:
            device.end()


def _under(parent: SpanContext | None) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context()) if parent is not None else Context()


def _parents(headers: Headers) -> list[SpanContext]:
    """The recorded traces that a record belongs to."""
    found = (_parsed(content) for name, content in headers[: 2 * TRACES_MAX] if name == HEADER)
    return [context for context in found if context is not None and context.trace_flags.sampled][:TRACES_MAX]


def _parsed(text: bytes) -> SpanContext | None:
    carrier = {HEADER: text.decode("latin-1")}
    context = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return context if context.is_valid else None


def _text(context: SpanContext) -> bytes:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, _under(context))
    return carrier.get(HEADER, "").encode()

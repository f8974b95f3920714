"""Export of traces: to a collector over OTLP, in batches, by a thread of OpenTelemetry.

If the collector does not respond, only its spans are lost: the queue of spans is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from deploy.telemetry.tracing import SpanRecorder

EXPORT_S = 1
"""Timeout of one export; also the longest wait for the last export at the end of a process."""


@contextmanager
def recording_spans(processor: SpanProcessor, *, share: float, replica: str) -> Iterator[SpanRecorder]:
    """Record spans for this share of the calls, and for calls whose callers trace them, until the context ends."""
    resource = Resource.create(
        {SERVICE_NAME: "dpuplane", SERVICE_INSTANCE_ID: replica, SERVICE_VERSION: version("dpuplane")}
    )
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(share)), resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    try:
        yield SpanRecorder(provider.get_tracer("dpuplane"))
    finally:
        provider.shutdown()


def exporting_to(url: str) -> SpanProcessor:
    """A processor that sends spans to a collector, such as http://HOST:4318/v1/traces."""
    return BatchSpanProcessor(OTLPSpanExporter(url, timeout=EXPORT_S), export_timeout_millis=EXPORT_S * 1_000)

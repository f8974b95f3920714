"""One command from the API to the devices as one trace, in one process and across two that share only Kafka."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deploy.clock import now_ms
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from deploy.telemetry.trace_export import recording_spans
from deploy.telemetry.tracing import APPENDS_MAX, ZONES_MAX
from eventstore.log import ZONES
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.support.eventually import until
from tests.support.kafka import KafkaUnderTest

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
ASKED = (("traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01"),)
PORTS = dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0")


class Traced:
    """Processes of one plane, each with its recorded spans. The first one has the API."""

    def __init__(self) -> None:
        self.planes: list[Plane] = []
        self.recorded: list[InMemorySpanExporter] = []
        self.calls: Any = None

    def spans(self) -> list[ReadableSpan]:
        """The spans of the caller's trace, ordered by start time."""
        found = [span for recorded in self.recorded for span in recorded.get_finished_spans()]
        ours = [span for span in found if span.context is not None and f"{span.context.trace_id:032x}" == TRACE_ID]
        return sorted(ours, key=lambda span: span.start_time or 0)

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


async def started(opened: AsyncExitStack, stack: ExitStack, *processes: dict[str, Any], zones: Sequence[str]) -> Traced:
    traced = Traced()
    for number, settings in enumerate(processes):
        recorded = InMemorySpanExporter()
        span_recorder = stack.enter_context(
            recording_spans(SimpleSpanProcessor(recorded), share=0.0, replica=f"r{number}")
        )
        plane = Plane.start(
            load_settings({**PORTS, **settings}, None, {}),
            now_ms=now_ms,
            rng=random.Random(number),
            expected_zones=zones,
            span_recorder=span_recorder,
        )
        traced.planes.append(await opened.enter_async_context(plane))
        traced.recorded.append(recorded)
    channel = grpc.aio.insecure_channel(traced.planes[0].addresses["api"])
    opened.push_async_callback(channel.close, None)
    traced.calls = CommandsStub(channel)
    return traced


def connected(plane: Plane, zones: Sequence[str]) -> bool:
    return plane.relay is not None and all(plane.relay.zone_devices(zone) for zone in zones)


def joining(zone: str, *names: str) -> pb.JoinNodesRequest:
    nodes = [pb.NodeSpec(name=name, addresses=[f"10.0.{number}.{len(name)}"]) for number, name in enumerate(names)]
    return pb.JoinNodesRequest(zone=zone, nodes=nodes)


def chain(spans: Sequence[ReadableSpan], leaf: ReadableSpan) -> list[str]:
    """The names of a span and its ancestors, from the span of the caller down."""
    by_id = {span.context.span_id: span for span in spans if span.context is not None}
    names = [leaf.name]
    while leaf.parent is not None and leaf.parent.span_id in by_id:
        leaf = by_id[leaf.parent.span_id]
        names.insert(0, leaf.name)
    return names


async def test_a_join_is_traced_from_the_api_to_the_hardware(
    tmp_path: Path, opened: AsyncExitStack, stack: ExitStack
) -> None:
    traced = await started(opened, stack, {"data": tmp_path / "plane", "simulate": "3"}, zones=["z"])
    plane = traced.planes[0]
    await until(lambda: connected(plane, ["z"]))
    await traced.calls.JoinNodes(joining("z", "unfollowed"))
    await traced.calls.JoinNodes(joining("z", "n"), metadata=ASKED)
    await until(lambda: "device z" in traced.names())
    part = plane.replica.partition_for(ZONES, "z")
    spans = traced.spans()
    assert [chain(spans, span) for span in spans if span.name == "device z"] == [
        [
            "Commands.JoinNodes",
            f"append {part}",
            f"fold {part}",
            f"forward {part}",
            "fold fleet/0",
            "relay z",
            "device z",
        ]
    ]
    device = next(span for span in spans if span.name == "device z")
    assert [event.name for event in device.events] == ["received", "applied", "in_hardware"]
    starts = [span.start_time or 0 for span in spans]
    assert starts == sorted(starts) and len(spans) == 7
    everything = [span for span in traced.recorded[0].get_finished_spans() if span not in spans]
    assert everything == [], "a call without a trace header is not traced"


async def test_a_policy_change_is_traced_to_a_limited_number_of_zones(
    tmp_path: Path, opened: AsyncExitStack, stack: ExitStack
) -> None:
    zones = [f"z{number:02}" for number in range(ZONES_MAX + 4)]
    traced = await started(opened, stack, {"data": tmp_path / "plane", "simulate": "1"}, zones=zones)
    await until(lambda: connected(traced.planes[0], zones))
    await traced.calls.JoinNodes(joining("z00", "n"))
    await traced.calls.SetPolicy(
        pb.SetPolicyRequest(policy=pb.PolicySpec(name="more", priority=5, action="allow")), metadata=ASKED
    )
    await until(lambda: sum(name.startswith("device ") for name in traced.names()) == ZONES_MAX)
    assert [name for name in traced.names() if not name.startswith(("relay", "device"))] == [
        "Commands.SetPolicy",
        "append fleet/0",
        "fold fleet/0",
    ]


async def test_a_stream_of_joins_is_traced_in_part(tmp_path: Path, opened: AsyncExitStack, stack: ExitStack) -> None:
    traced = await started(opened, stack, {"data": tmp_path / "plane"}, zones=[])
    requests = [joining("z", f"n{number}") for number in range(3 * APPENDS_MAX)]
    summary = await traced.calls.JoinNodesStream(iter(requests), metadata=ASKED)
    assert summary.done == len(requests)
    await until(lambda: "Commands.JoinNodesStream" in traced.names())
    assert sum(name.startswith("append ") for name in traced.names()) == APPENDS_MAX


@pytest.mark.kafka
async def test_a_trace_passes_through_kafka_with_its_record(
    kafka_log: KafkaUnderTest, opened: AsyncExitStack, stack: ExitStack
) -> None:
    place = {"kafka": kafka_log.bootstrap, "topic_prefix": kafka_log.prefix, "partitions": 3}
    traced = await started(opened, stack, {**place, "role": "api"}, {**place, "simulate": "2"}, zones=["z"])
    relay = traced.planes[1]
    await until(lambda: connected(relay, ["z"]))
    await traced.calls.JoinNodes(joining("z", "n"), metadata=ASKED)
    part = relay.replica.partition_for(ZONES, "z")
    # The relay may read a forward before the append of the forward, and so its span, has ended.
    await until(lambda: {"device z", f"forward {part}"} <= set(traced.names()))
    spans = traced.spans()
    (device,) = [span for span in spans if span.name == "device z"]
    path = chain(spans, device)
    assert path == [
        "Commands.JoinNodes",
        f"append {part}",
        f"fold {part}",
        f"forward {part}",
        "fold fleet/0",
        "relay z",
        "device z",
    ]
    assert {span.resource.attributes["service.instance.id"] for span in spans} == {"r0", "r1"}
    assert device.resource.attributes["service.instance.id"] == "r1"
    assert [one.running for one in traced.planes[0].replica.partitions_status() if one.partition == part] == [
        one.running for one in relay.replica.partitions_status() if one.partition == part
    ]

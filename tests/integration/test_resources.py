"""Objects of custom resources through the API: applied, compared, listed, deleted; each refusal changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from commands.handlers.resources import ResourceHandler
from commands.rpc.middleware import Call
from eventstore.log import RESOURCES
from eventstore.reasons import Reason
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub, StreamsStub
from tests.support.served import Served, now_ms, second_server, served

PROVISIONING = "provisioning.dpu.nvidia.com"
BFB, DPU_SET, DPU_NODE = f"BFB.{PROVISIONING}", f"DPUSet.{PROVISIONING}", f"DPUNode.{PROVISIONING}"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


def bfb(name: str = "image", *, file: str = "a", **fields: Any) -> pb.ResourceSpec:
    spec = json.dumps({"url": f"http://images/{file}.bfb"})
    return pb.ResourceSpec(**({"kind": BFB, "namespace": "dpf", "name": name, "spec": spec} | fields))


def dpu_set(name: str = "rack7", *, image: str = "image", flavor: str = "hbn") -> pb.ResourceSpec:
    spec = {"dpuTemplate": {"spec": {"bfb": {"name": image}, "dpuFlavor": flavor}}}
    return pb.ResourceSpec(kind=DPU_SET, namespace="dpf", name=name, spec=json.dumps(spec))


async def apply(plane: Served, *resources: pb.ResourceSpec, **fields: Any) -> pb.CommandResult:
    answer: pb.CommandResult = await plane.calls.ApplyResources(pb.ApplyResourcesRequest(resources=resources, **fields))
    return answer


async def refusal(plane: Served, *resources: pb.ResourceSpec) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await apply(plane, *resources)
    return raised.value.code(), raised.value.details() or ""


async def get(plane: Served, kind: str, name: str) -> pb.Resource:
    found: pb.Resource = await plane.queries.GetResource(pb.GetResourceRequest(kind=kind, namespace="dpf", name=name))
    return found


async def listed(plane: Served, **fields: Any) -> list[str]:
    request = pb.ListResourcesRequest(page_size=2, **fields)
    names: list[str] = []
    while True:
        page = await plane.queries.ListResources(request)
        names += [each.name for each in page.resources]
        if not page.next_page_token:
            return names
        request.page_token = page.next_page_token


async def delete(plane: Served, kind: str, *names: str) -> pb.CommandResult:
    wanted = [pb.ResourceName(kind=kind, namespace="dpf", name=name) for name in names]
    answer: pb.CommandResult = await plane.calls.DeleteResources(pb.DeleteResourcesRequest(resources=wanted))
    return answer


async def end_of(plane: Served) -> int:
    """The number of records about objects."""
    return sum([await plane.log.end(partition) for partition in plane.replica.partitions(RESOURCES)])


def outcomes(answer: pb.CommandResult) -> list[tuple[str, int, int]]:
    return [(item.name.rpartition("/")[2], item.outcome, item.generation) for item in answer.items]


async def test_an_object_gets_defaults_an_identity_and_a_generation_for_each_change_of_its_spec(plane: Served) -> None:
    answer = await apply(plane, dpu_set())
    assert (answer.outcome, answer.generation) == (pb.OUTCOME_DONE, 1)
    first = await get(plane, DPU_SET, "rack7")
    assert json.loads(first.spec)["dpuTemplate"]["spec"]["automaticNodeReboot"] is True
    assert first.api_version == f"{PROVISIONING}/v1alpha1" and first.source == "local" and first.actor
    again = await apply(plane, dpu_set())
    assert (again.outcome, again.generation) == (pb.OUTCOME_UNCHANGED, 1)
    assert (await apply(plane, dpu_set(flavor="other"))).generation == 2
    second = await get(plane, DPU_SET, "rack7")
    assert (second.uid, second.create_time) == (first.uid, first.create_time)


async def test_labels_and_annotations_are_replaced_without_a_new_generation(plane: Served) -> None:
    await apply(plane, bfb(labels={"a": "1", "b": "2"}, annotations={"x": "1"}))
    answer = await apply(plane, bfb(labels={"b": "3"}))
    found = await get(plane, BFB, "image")
    assert (answer.outcome, found.generation) == (pb.OUTCOME_DONE, 1)
    assert dict(found.labels) == {"b": "3"} and not found.annotations


async def test_every_fault_of_a_request_is_told_and_nothing_is_appended(plane: Served) -> None:
    before = await end_of(plane)
    faulty = [
        bfb(),
        bfb("Image_1", spec=json.dumps({"urls": 3})),
        bfb("b", spec="[1]"),
        bfb("c", namespace="", api_version=f"{PROVISIONING}/v9"),
        pb.ResourceSpec(kind="DPUVPC.vpc.dpu.nvidia.com", namespace="dpf", name="d"),
        pb.ResourceSpec(kind="Secret.", namespace="dpf", name="e"),
    ]
    code, sentences = await refusal(plane, *faulty)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    for part in (
        "resources[1].metadata.name: must be at most 253 lower-case letters",
        "resources[1].spec.urls: is no field here; url is one",
        "resources[1].spec.url: must be set",
        "resources[2].spec: must be a JSON object",
        f"resources[3].apiVersion: '{PROVISIONING}/v9' must be {PROVISIONING}/v1alpha1",
        "resources[3].metadata.namespace: must be set",
        "resources[4].kind: 'DPUVPC.vpc.dpu.nvidia.com' is refused: virtual private clouds on DPUs are not supported",
        "resources[5].kind: 'Secret.' must be KIND.GROUP of a kind that the plane knows",
    ):
        assert part in sentences
    forecast = await apply(plane, *faulty, dry_run=True)
    assert forecast.outcome == pb.OUTCOME_REFUSED and "5 of 6 objects have faults" in forecast.reason
    assert [len(change.faults) for change in forecast.dry_run.resources] == [0, 3, 1, 2, 1, 1]
    assert await end_of(plane) == before and not await listed(plane)


@pytest.mark.parametrize(
    "spec",
    [
        '{"url": "\\ud800"}',
        '{"url": "http://a", "\\udfff": 1}',
        '{"url": 1e999}',
        '{"url": 36893488147419103232}',
        '{"url": ' + "[" * 100 + "]" * 100 + "}",
        '{"url": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"url": "http://a"',
        "null",
    ],
    ids=["text", "key", "infinite", "large", "deep", "deeper", "cut", "null"],
)
async def test_a_spec_that_is_no_plain_json_object_is_one_fault(plane: Served, spec: str) -> None:
    code, sentence = await refusal(plane, bfb(spec=spec))
    assert code is grpc.StatusCode.INVALID_ARGUMENT and sentence.startswith("resources[0].spec"), sentence


async def test_an_error_has_as_many_sentences_as_fit_and_counts_the_others(plane: Served) -> None:
    _, sentences = await refusal(plane, *(bfb(f"n{n}", spec="{}") for n in range(200)))
    assert len(sentences) < 1_000 and sentences.startswith("resources[0].spec.url: must be set; resources[1].")
    assert sentences.endswith(" more faults, which a dry run lists")


@pytest.mark.parametrize("count", [0, 1_001])
async def test_a_request_has_from_one_to_a_thousand_objects(plane: Served, count: int) -> None:
    code, sentence = await refusal(plane, *(bfb(f"n{n}") for n in range(count)))
    assert (code, sentence) == (grpc.StatusCode.INVALID_ARGUMENT, f"resources: {count} items must be from 1 to 1000")


async def test_an_object_occurs_once_in_a_request(plane: Served) -> None:
    _, sentence = await refusal(plane, bfb(), bfb("b"), bfb(file="other"))
    assert sentence == "resources[2]: 'image' is given at 0 already"


async def test_what_the_present_object_does_not_allow_is_a_failed_precondition(plane: Served) -> None:
    await apply(plane, bfb())
    code, sentence = await refusal(plane, bfb("new"), bfb(file="b"))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and sentence.startswith("resources[1].spec.url: ")
    assert await listed(plane) == ["image"]


async def test_a_dry_run_shows_each_object_before_and_after_and_appends_nothing(plane: Served) -> None:
    await apply(plane, dpu_set(), bfb())
    before = await end_of(plane)
    answer = await apply(plane, dpu_set(flavor="other"), bfb(), bfb("new"), dry_run=True)
    changed, same, new = answer.dry_run.resources
    assert (changed.before.generation, changed.after.generation) == (1, 2)
    assert json.loads(changed.after.spec)["dpuTemplate"]["spec"]["dpuFlavor"] == "other"
    assert same.before == same.after
    assert not new.HasField("before") and new.after.generation == 1
    assert await end_of(plane) == before


async def test_a_deleted_object_stays_until_the_last_object_that_refers_to_it_is_gone(plane: Served) -> None:
    await apply(plane, dpu_set(), dpu_set("rack8"), bfb())
    answer = await delete(plane, BFB, "image")
    (item,) = answer.items
    assert item.note == "it stays until these no longer use it: DPUSet rack7, DPUSet rack8"
    code, sentence = await refusal(plane, bfb())
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "image is being deleted" in sentence
    assert (await get(plane, BFB, "image")).HasField("delete_time")
    await delete(plane, DPU_SET, "rack7")
    assert await listed(plane) == ["image", "rack8"]
    assert not (await delete(plane, DPU_SET, "rack8")).items
    assert await listed(plane) == []


async def test_the_deletion_of_an_absent_object_changes_nothing_and_says_so(plane: Served) -> None:
    await apply(plane, bfb())
    answer = await delete(plane, BFB, "image", "none")
    assert answer.outcome == pb.OUTCOME_DONE
    assert [(item.outcome, "does not exist" in item.reason) for item in answer.items] == [(pb.OUTCOME_UNCHANGED, True)]


async def test_an_object_knows_what_it_refers_to_and_what_refers_to_it(plane: Served) -> None:
    await apply(plane, dpu_set(), bfb())
    found = await get(plane, DPU_SET, "rack7")
    assert [(each.path, each.name, each.missing) for each in found.references] == [
        ("spec.dpuTemplate.spec.bfb.name", "image", False),
        ("spec.dpuTemplate.spec.dpuFlavor", "hbn", True),
    ]
    assert [(each.kind, each.name) for each in (await get(plane, BFB, "image")).referrers] == [(DPU_SET, "rack7")]


async def test_lists_are_by_kind_namespace_and_labels_in_pages(plane: Served) -> None:
    await apply(plane, *(bfb(f"n{n}", labels={"odd": str(n % 2)}) for n in range(5)), bfb("x", namespace="lab"))
    await apply(plane, dpu_set())
    assert await listed(plane, kind=BFB) == ["n0", "n1", "n2", "n3", "n4", "x"]
    assert await listed(plane, kind=BFB, namespace="lab") == ["x"]
    assert await listed(plane, namespace="dpf", label_selector="odd=1") == ["n1", "n3"]
    assert await listed(plane, kind=DPU_NODE) == await listed(plane, source="east") == []


async def test_an_unknown_object_is_not_found(plane: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await get(plane, BFB, "none")
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_repeated_command_gets_the_outcome_of_the_first(plane: Served) -> None:
    await apply(plane, bfb())
    command_id = plane.command_id()
    first = await apply(plane, dpu_set(), bfb("b"), command_id=command_id)
    await apply(plane, dpu_set(flavor="later"))
    before = await end_of(plane)
    again = await apply(plane, dpu_set(), bfb("b"), command_id=command_id)
    assert outcomes(again) == outcomes(first) and again.position == first.position
    assert (await get(plane, DPU_SET, "rack7")).generation == 2
    other = await apply(plane, dpu_set(flavor="another"), command_id=command_id)
    assert (other.outcome, other.reason_code) == (pb.OUTCOME_REFUSED, Reason.COMMAND_ID_IN_USE)
    assert await end_of(plane) == before


async def test_concurrent_changes_of_one_object_are_all_applied_in_some_order(plane: Served) -> None:
    await apply(plane, dpu_set())
    ids = [plane.command_id() for _ in range(4)]
    flavors = [f"f{n}" for n in range(4)]
    answers = await asyncio.gather(
        *(apply(plane, dpu_set(flavor=flavor), command_id=own) for flavor, own in zip(flavors, ids, strict=True))
    )
    assert sorted((answer.outcome, answer.generation) for answer in answers) == [
        (pb.OUTCOME_DONE, generation) for generation in (2, 3, 4, 5)
    ]
    await told_alike(plane, ids, answers)


async def test_a_change_that_an_earlier_one_no_longer_allows_is_refused_beside_others_that_are_applied(
    plane: Served,
) -> None:
    handler = ResourceHandler(plane.server.command_handler, plane.replica, now_ms)
    ids = [plane.command_id() for _ in range(3)]
    requests = [
        pb.ApplyResourcesRequest(command_id=own, resources=[bfb(file=f"f{n}"), bfb(f"own{n}")])
        for n, own in enumerate(ids)
    ]
    # All are compared with the empty plane before the first of them is in the log.
    answers = await asyncio.gather(*(handler.apply(request, Call("?test", 10.0)) for request in requests))
    assert [answer.outcome for answer in answers] == [pb.OUTCOME_DONE] * 3
    items = [next(item for item in answer.items if item.name.endswith("/image")) for answer in answers]
    assert sorted(item.outcome for item in items) == [pb.OUTCOME_DONE, pb.OUTCOME_REFUSED, pb.OUTCOME_REFUSED]
    refused = [item for item in items if item.outcome == pb.OUTCOME_REFUSED]
    assert all(item.reason_code == Reason.RESOURCE_UPDATE_INVALID and "spec.url: " in item.reason for item in refused)
    assert await listed(plane) == ["image", "own0", "own1", "own2"]


async def told_alike(plane: Served, ids: Sequence[str], answers: Sequence[pb.CommandResult]) -> None:
    """Every command has the same result when it is looked up by its id."""
    for command_id, answer in zip(ids, answers, strict=True):
        status = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=command_id))
        assert (status.outcome, status.generation) == (answer.outcome, answer.generation)


async def test_servers_that_change_one_object_at_once_compare_again_until_all_changes_are_applied(
    plane: Served,
) -> None:
    await apply(plane, dpu_set())
    async with second_server(plane) as address, grpc.aio.insecure_channel(address) as channel:
        calls: Any = CommandsStub(channel)
        requests = [pb.ApplyResourcesRequest(resources=[dpu_set(flavor=f"f{n}")]) for n in range(4)]
        asked = [(plane.calls if n % 2 else calls).ApplyResources(request) for n, request in enumerate(requests)]
        answers = await asyncio.gather(*asked)
        assert sorted(answer.generation for answer in answers) == [2, 3, 4, 5]


async def test_a_watch_of_positions_tells_of_a_change_of_an_object(plane: Served) -> None:
    streams: Any = StreamsStub(plane.channel)
    watched = aiter(streams.Watch(pb.WatchRequest(), timeout=30.0))
    await anext(watched)
    applied = await apply(plane, bfb())
    _, _, position = applied.position.partition(":")
    while position not in (await anext(watched)).position.replace(":", ",").split(","):
        pass

"""The charts of templates: read once by one replica, observed in the log, and read again while they cannot be."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping

import pytest

from drivers.charts import charts
from drivers.charts.chart_reader import RefusedChart, UnreadChart
from drivers.charts.charts import Charts
from drivers.charts.repository_secrets import Credential, Found
from eventstore.log import RESOURCES
from projections.fold_states import FoldStates
from projections.resources import kinds
from projections.resources.charts import Chart, chart_of, needed_versions, observation_of
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.world import World
from projections.resources.observation import observation
from projections.resources.state import LOCAL, ObjectId, Resource, ResourcesState
from projections.resources.status_fields import status_fields
from schemas.events import ResourcesApplied, ResourcesDeleted
from schemas.resources.dpf.names import DOCA_VERSION
from tests.support.deployments import deployed
from tests.support.derivations import Derived, key, row
from tests.support.memory_plane import Plane, plane

HBN = Chart("https://charts.example/doca", "hbn", "2.0.0")
EAST = "east"


def template(chart: Chart = HBN, annotations: Mapping[str, str] | None = None) -> Resource:
    source = {"repoURL": chart.repository, "chart": chart.name, "version": chart.version}
    return row({"deploymentServiceName": "hbn", "helmChart": {"source": source}}, annotations=dict(annotations or {}))


def test_an_annotation_of_the_template_counts_before_the_chart() -> None:
    seen = observation(observation_of(HBN, {DOCA_VERSION: ">=3", "other": "1"}))
    assert needed_versions(template(), seen) == {DOCA_VERSION: ">=3"}
    assert needed_versions(template(HBN, {DOCA_VERSION: "2"}), seen) == {DOCA_VERSION: "2"}
    assert needed_versions(template(HBN, {DOCA_VERSION: "2"}), None) == {DOCA_VERSION: "2"}
    assert needed_versions(template(), None) == {}
    newer = HBN._replace(version="3.0.0")
    assert needed_versions(template(newer), seen) == {}, "what is observed is of another chart"
    unreadable = observation(json.dumps({"ready": True, "chart": str(HBN), "versions": {DOCA_VERSION: 3}}))
    assert needed_versions(template(), unreadable) == {}
    assert chart_of(row({"helmChart": {"source": {"repoURL": "https://a", "path": "p", "version": "1"}}})) is None


def test_a_deployment_is_held_by_the_versions_of_a_chart() -> None:
    made, name = deployed(), key(kinds.DPU_SERVICE_TEMPLATE, "hbn")
    chart = chart_of(made.state.objects.rows[name])
    assert chart is not None
    deployment = key(kinds.DPU_DEPLOYMENT, "dep")
    made.observe(key(kinds.BFB, "image"), ready=True, phase="Ready", versions={"doca": "2.9.0"})
    assert not made.derivation.holds(deployment)
    made.observe(name, **json.loads(observation_of(chart, {DOCA_VERSION: ">=3"})))
    assert made.derivation.holds(deployment)
    world = World.of(made.state, made.derivation)
    matching = next(each for each in conditions_of(deployment, world) if each.type == "VersionMatchingReady")
    assert "needs version '>=3' of dpu.nvidia.com/doca-version" in matching.message
    assert status_fields(name, world) == {"versions": {DOCA_VERSION: ">=3"}}
    assert conditions_of(name, world)[0].holds


def test_the_condition_of_a_template_says_why_its_chart_cannot_be_read() -> None:
    name = key(kinds.DPU_SERVICE_TEMPLATE, "hbn")
    made = Derived({name: template()})
    world = World.of(made.state, made.derivation)
    assert conditions_of(name, world)[0].holds, "no process reads charts"
    made.observe(name, **json.loads(observation_of(HBN, None, "charts.example did not answer within 20 s")))
    ready, reconciled = conditions_of(name, world)
    assert (ready.status, reconciled.type, reconciled.reason) == ("False", "DPUServiceTemplateReconciled", "Error")
    assert reconciled.message == (
        "the chart of DPUServiceTemplate dpf/hbn cannot be read: charts.example did not answer within 20 s"
    )
    made.apply({name: template(HBN, {DOCA_VERSION: ">=3"})})
    assert conditions_of(name, world)[0].holds, "the template states the versions itself"


class Repository:
    """The charts that can be read, by version."""

    def __init__(self) -> None:
        self.charts: dict[Chart, Mapping[str, str]] = {}
        self.reads: Counter[Chart] = Counter()
        self.credential: Credential | None = None

    async def annotations(self, chart: Chart, credential: Credential | None = None) -> Mapping[str, str]:
        self.reads[chart] += 1
        if credential != self.credential:
            raise RefusedChart("https://charts.example answered with status 401")
        if chart not in self.charts:
            raise UnreadChart(f"charts.example has no {chart.name}")
        return self.charts[chart]


class Secrets:
    """What is found for every chart, and where it was looked for."""

    def __init__(self) -> None:
        self.found = Found()
        self.asked: set[tuple[str, str]] = set()

    async def of(self, source: str, namespace: str, chart: Chart) -> Found:
        self.asked.add((source, namespace))
        return self.found


class Templates:
    """Templates of a source cluster, and the processes that read their charts."""

    def __init__(self, made: Plane) -> None:
        self.made, self.repository, self.secrets = made, Repository(), Secrets()

    async def start(self, name: str, *sources: str) -> None:
        """Start a process with a connection to these clusters."""
        life = await self.made.start(name, "api", "kubernetes", acts=False)
        found = Charts(
            self.repository,
            self.secrets,
            life.replica,
            self.made.ranks(name),
            accepts=lambda source: source in (sources or (EAST,)),
            now_ms=self.made.now_ms,
            rng=self.made.rng(),
        )
        self.made.spawn(name, found.run())

    @property
    def state(self) -> ResourcesState:
        replica = next(iter(self.made.replicas.values()))
        return FoldStates(replica).resources_at(replica.partition_for(RESOURCES, EAST))

    async def apply(self, name: str, given: Resource, source: str = EAST) -> None:
        await self._submit(
            source,
            ResourcesApplied(
                self.made.command(source),
                source=source,
                kinds=[kinds.DPU_SERVICE_TEMPLATE],
                namespaces=["dpf"],
                names=[name],
                uids=[],
                generations=[],
                created_ms=[],
                deleted_ms=[],
                labels=[{}],
                annotations=[given.annotations],
                specs=[given.spec],
                expected_generations=[-1],
            ),
        )

    async def delete(self, name: str) -> None:
        event = ResourcesDeleted(self.made.command(EAST), EAST, [kinds.DPU_SERVICE_TEMPLATE], ["dpf"], [name], [])
        await self._submit(EAST, event)

    async def _submit(self, source: str, event: ResourcesApplied | ResourcesDeleted) -> None:
        replica = next(iter(self.made.replicas.values()))
        partition = replica.partition_for(RESOURCES, source)
        answer = await replica.submit(partition, source.encode(), event, timeout_s=10.0)
        assert answer.outcome.code == "done", answer.outcome

    def seen(self, name: str) -> dict[str, object]:
        found = self.state.seen.get(ObjectId(EAST, kinds.DPU_SERVICE_TEMPLATE, "dpf", name).key)
        return found.fields if found is not None else {}


@pytest.mark.virtual_clock
async def test_a_chart_is_read_once_for_all_templates_and_restarts() -> None:
    async with plane() as made:
        templates = Templates(made)
        templates.repository.charts[HBN] = {DOCA_VERSION: ">=3"}
        await templates.start("r1")
        for name in ("a", "b"):
            await templates.apply(name, template())
        await templates.apply("stated", template(HBN._replace(name="other"), {DOCA_VERSION: "2"}))
        await templates.apply("local", template(HBN._replace(name="local")), LOCAL)
        await made.until(lambda: bool(templates.seen("a") and templates.seen("b")))
        assert templates.seen("b") == {"ready": True, "chart": str(HBN), "versions": {DOCA_VERSION: ">=3"}}
        await templates.start("r2")
        await asyncio.sleep(20.0)
        assert set(templates.repository.reads) == {HBN}
        assert templates.repository.reads[HBN] <= 2
        newer = HBN._replace(version="3.0.0")
        templates.repository.charts[newer] = {}
        await templates.apply("a", template(newer))
        await made.until(lambda: templates.seen("a")["chart"] == str(newer))
        await templates.delete("b")
        await made.until(lambda: not templates.seen("b"))


@pytest.mark.virtual_clock
async def test_a_chart_that_cannot_be_read_is_observed_and_read_again() -> None:
    async with plane() as made:
        templates = Templates(made)
        await templates.start("r1")
        await templates.apply("a", template())
        await made.until(lambda: bool(templates.seen("a")))
        assert templates.seen("a") == {"ready": False, "chart": str(HBN), "message": "charts.example has no hbn"}
        await asyncio.sleep(1_200.0)
        assert 8 <= templates.repository.reads[HBN] <= 25, "the pauses grow to a few minutes"
        templates.repository.charts[HBN] = {DOCA_VERSION: ">=3"}
        await asyncio.sleep(charts.RETRY_MAX_S + charts.CHECK_S + 1.0)
        assert templates.seen("a")["ready"]


@pytest.mark.virtual_clock
async def test_a_private_chart_is_read_with_the_credential_of_its_source_cluster() -> None:
    async with plane() as made:
        templates = Templates(made)
        templates.repository.charts[HBN] = {DOCA_VERSION: ">=3"}
        templates.repository.credential = Credential("argocd/doca", "robot", "hidden")
        await templates.start("r1")
        await templates.apply("a", template())
        await made.until(lambda: bool(templates.seen("a")))
        refused = "https://charts.example answered with status 401"
        assert templates.seen("a")["message"] == f"{refused}; Argo CD has no repository Secret with a password for it"
        templates.secrets.found = Found(fault="they cannot be listed")
        await made.until(lambda: templates.seen("a")["message"] == f"{refused}; they cannot be listed")
        templates.secrets.found = Found(Credential("argocd/old", "robot", "hidden"))
        wrong = f"{refused} to the user in Secret argocd/old"
        await made.until(lambda: templates.seen("a")["message"] == wrong)
        templates.secrets.found = Found(templates.repository.credential)
        await made.until(lambda: bool(templates.seen("a")["ready"]), timeout_s=2 * charts.RETRY_MAX_S)
        assert templates.secrets.asked == {(EAST, "dpf-operator-system")}


@pytest.mark.virtual_clock
async def test_a_chart_is_read_by_a_process_that_is_connected_to_its_cluster() -> None:
    async with plane() as made:
        templates = Templates(made)
        templates.repository.charts[HBN] = {}
        for number in range(3):
            await templates.start(f"west{number}", "west")
        await templates.start("east")
        await templates.apply("a", template())
        await made.until(lambda: bool(templates.seen("a")), timeout_s=4 * charts.RANK_S)
        assert templates.repository.reads[HBN] == 1

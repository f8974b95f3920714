"""The metrics of objects: rollouts by state, and DPU clusters by whether they answer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deploy.web.metrics.fleet import collect
from deploy.web.metrics.survey import Survey
from projections.resources.kinds import DPU_CLUSTER, DPU_SET
from projections.resources.rollouts.rows import Revision, Rollout
from projections.resources.state import Observed
from tests.support.memory_plane import plane
from tests.support.resource_planes import ResourcePlane, key

pytestmark = pytest.mark.virtual_clock

ROLLING = Rollout(
    deployment="",
    position=1,
    template="t",
    stated="t",
    strategy="RollingUpdate",
    max_unavailable="1",
    waves=("100%",),
    bake_ms=0,
    failure_budget="0",
    is_paused=False,
    digest=1,
    revisions=(Revision(1, "t", 1, "ann"),),
)


async def test_rollouts_are_counted_by_state_until_they_end_and_clusters_by_readiness() -> None:
    async with plane() as made:
        objects = ResourcePlane(made)
        replica = await objects.start("r1")
        for name in ("near", "far"):
            await objects.apply(DPU_CLUSTER, name, {"type": "static", "kubeconfig": name})
        state = objects.state
        state.observe({key(DPU_CLUSTER, "near"): Observed("u", '{"ready":true}', "edge", 1, 1)})
        ended = replace(ROLLING, revisions=(Revision(1, "t", 1, "ann", 2, "complete"),))
        for name, row in (
            ("rolling", ROLLING),
            ("held", replace(ROLLING, held="1 DPU has failed")),
            ("paused", replace(ROLLING, paused_by="ann")),
            ("stated", replace(ROLLING, is_paused=True)),
            ("ended", ended),
        ):
            state.rollouts.put(key(DPU_SET, name), row)
        survey = Survey(replica, None)
        await survey.walk()
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in collect(replica, survey)
            for sample in family.samples
        }
        assert [found["dpuplane_rollouts", state] for state in ("rolling", "held", "paused")] == [1, 1, 2]
        assert [found["dpuplane_dpu_clusters", ready] for ready in ("Ready", "NotReady")] == [1, 1]

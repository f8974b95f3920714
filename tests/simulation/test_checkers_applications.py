"""The checker of Applications finds one that is not observed as it is wanted, and one that nothing wants."""

from __future__ import annotations

import json
from typing import Any

from eventstore.log import RESOURCES, Partition
from projections.resources import kinds
from projections.resources.state import LOCAL, object_id
from schemas import events as e
from tests.simulation.checkers import applications
from tests.simulation.peers import wanted_applications
from tests.support.written_run import WrittenRun

RESOURCES_0 = Partition(RESOURCES, 0)


class ServiceLog:
    """A log with one DPUService, whose Application is observed as ready with a version."""

    def __init__(self) -> None:
        self.run = WrittenRun()
        source = {"repoURL": "https://charts", "chart": "a", "version": "1.0.0"}
        spec = json.dumps({"deployInCluster": True, "helmChart": {"source": source}})
        optional: dict[str, Any] = {key: [] for key in ("uids", "generations", "created_ms", "deleted_ms")}
        optional |= {key: [] for key in ("labels", "annotations", "expected_generations")}
        applied = e.ResourcesApplied(
            self.run.said(), LOCAL, [kinds.DPU_SERVICE], ["dpf"], ["a"], specs=[spec], **optional
        )
        self.run.write(RESOURCES_0, applied)
        (self.key,) = wanted_applications(self.run.evidence().folded[RESOURCES_0].state)

    def observe(self, **fields: Any) -> None:
        at = object_id(self.key)
        text = json.dumps(fields)
        event = e.ResourcesObserved(self.run.said(), LOCAL, [at.kind], [at.namespace], [at.name], [], [text])
        self.run.write(RESOURCES_0, event)

    def found(self) -> list[str]:
        return [*applications.check_observed(self.run.evidence())]


def test_an_application_that_is_not_ready_in_its_version_is_a_fault() -> None:
    log = ServiceLog()
    assert log.found() == [f"{log.key} is observed as None, and is wanted in version 1.0.0"]
    log.observe(ready=True, revision="0.9.0")
    assert log.found()
    log.observe(ready=False, revision="1.0.0")
    assert log.found()
    log.observe(ready=True, revision="1.0.0")
    assert not log.found()


def test_an_application_that_nothing_wants_is_a_fault() -> None:
    log = ServiceLog()
    log.observe(ready=True, revision="1.0.0")
    log.run.write(RESOURCES_0, e.ResourcesDeleted(log.run.said(), LOCAL, [kinds.DPU_SERVICE], ["dpf"], ["a"], []))
    assert log.found() == [f"{log.key} is observed, and no DPUService wants it"]

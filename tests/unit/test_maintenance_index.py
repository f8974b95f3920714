"""Places of hosts in maintenance, as the fold shows them."""

from __future__ import annotations

import json

from projections.resources.host_effects import Effect, Maintenance, maintenance_id, maintenance_of
from projections.resources.kinds import DPF_OPERATOR_CONFIG
from projections.resources.maintenance_index import MaintenanceIndex
from projections.resources.state import ObjectId, Resource, ResourcesState

SOURCE = "east"


class Scene:
    def __init__(self, hosts_max: int) -> None:
        self.state = ResourcesState()
        self.index = MaintenanceIndex()
        self.limit(hosts_max)

    def limit(self, hosts_max: int) -> None:
        spec = {"provisioningController": {"maxUnavailableDPUNodes": hosts_max}}
        key = ObjectId(SOURCE, DPF_OPERATOR_CONFIG, "dpf", "config").key
        self.state.apply({key: row("config", 0, spec)})

    def put(self, host: str, created_ms: int, *requestors: str, source: str = SOURCE) -> Maintenance:
        at = maintenance_id(source, "dpf", host, "drain")
        spec = {"dpuNodeName": host, "nodeEffect": Effect().as_json(), "requestor": [*requestors]}
        self.state.apply({at.key: row(host, created_ms, spec)})
        return maintenance_of(at, self.state.objects.rows[at.key])

    def placed(self, *wanted: Maintenance) -> list[bool]:
        return [self.index.has_place(self.state, each) for each in wanted]


def test_a_place_is_kept_when_a_maintenance_arrives_that_was_created_in_the_same_second() -> None:
    scene = Scene(1)
    first = scene.put("h2", 1_000, "dpu")
    assert scene.placed(first) == [True]
    second = scene.put("h1", 1_000, "dpu")
    assert scene.placed(first, second) == [True, False]
    first = scene.put("h2", 1_000, "dpu", "another")
    assert scene.placed(first, second) == [True, False]
    scene.state.apply({first.at.key: None})
    assert scene.placed(second) == [True]
    first = scene.put("h2", 1_000, "dpu")
    assert scene.placed(first, second) == [False, True], "made anew, it is the last"


def row(name: str, created_ms: int, spec: object) -> Resource:
    return Resource(f"uid-{name}", 1, created_ms, created_ms, created_ms, {}, {}, json.dumps(spec))


def test_a_place_gets_free_when_a_maintenance_ends_or_the_limit_grows() -> None:
    scene = Scene(1)
    first, second, third = (scene.put(f"h{number}", number, "dpu") for number in range(3))
    assert scene.placed(first, second, third) == [True, False, False]
    scene.put("h0", 0)
    assert scene.placed(second, third) == [False, False], "its host is drained until the effect is lifted"
    scene.state.apply({first.at.key: None})
    assert scene.placed(first, second, third) == [False, True, False]
    scene.limit(2)
    assert scene.placed(second, third) == [True, True]


def test_a_maintenance_that_the_fold_does_not_show_has_no_place() -> None:
    scene = Scene(5)
    known = scene.put("h1", 1, "dpu")
    assert scene.placed(known, known._replace(uid="another")) == [True, False]
    assert scene.placed(known._replace(at=known.at._replace(name="h2-drain"))) == [False]


def test_each_source_has_its_own_places_and_a_restart_reads_all() -> None:
    scene = Scene(1)
    own = scene.put("h2", 2, "dpu")
    others = [scene.put(f"h{number}", number, "dpu", source="west") for number in range(2)]
    assert scene.placed(own, *others) == [True, True, True], "the other source has the default limit"
    scene.state.rederive()
    assert scene.placed(own, *others) == [True, True, True]
    assert len(scene.index.all(scene.state)) == 3

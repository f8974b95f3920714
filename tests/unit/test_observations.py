"""What is observed of the real things behind objects: accepted in order, kept, and used by conditions and phases."""

from __future__ import annotations

from projections.resources import views
from projections.resources.conditions.causes import blocked_by, conditions_of
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.observation import Observation
from projections.resources.state import ObjectId, ResourcesState
from tests.support.resources import BFB, DPU_SET, LOCAL, NAMESPACE, START_MS, DeliveredResources, bfb, dpu_set

KEY = ObjectId(LOCAL, BFB, NAMESPACE, "image").key
READY, BROKEN = '{"ready":true,"phase":"Ready"}', '{"phase":"Error","message":"404 Not Found","code":404}'


def world(log: DeliveredResources) -> World:
    derivation = Derivation()
    derivation.update(log.state, log.state.objects.rows)
    return World.of(log.state, derivation)


def with_image() -> DeliveredResources:
    log = DeliveredResources()
    log.apply(BFB, "image", bfb("1"))
    log.apply(DPU_SET, "set", dpu_set("image"))
    return log


def test_an_observation_is_kept_with_its_observer_and_time() -> None:
    log = with_image()
    assert log.observe(BFB, "image", READY, uids=["u"]).code == "done"
    row = log.state.observed.rows[KEY]
    assert (row.uid, row.observation, row.observer) == ("u", READY, "test")
    assert (row.changed_ms, row.changed_offset) == (START_MS + 3, 3)
    assert log.observe(BFB, "image", READY, uids=["u"]).code == "unchanged"
    assert log.state.observed.rows[KEY] is row, "an equal observation writes nothing"


def test_an_observation_outlives_its_object_until_the_observer_removes_it() -> None:
    log = with_image()
    log.observe(BFB, "image", READY, uids=["u"])
    log.delete(DPU_SET, "set")
    log.delete(BFB, "image")
    assert log.row(BFB, "image") is None
    assert log.seen(BFB, "image") == READY
    assert log.observe(BFB, "image", "", uids=["another"]).code == "unchanged"
    assert log.observe(BFB, "image", "", uids=["u"]).code == "done"
    assert log.seen(BFB, "image") is None


def test_reports_of_a_partition_are_accepted_in_order_only() -> None:
    log = with_image()

    def report(text: str, first: int, last: int, cause: int = 1) -> str:
        return log.observe(BFB, "image", text, cause_partition=cause, from_offset=first, to_offset=last).code

    assert report(BROKEN, 0, 7) == "done"
    assert report(READY, 0, 9) == "refused", "a replica that lags behind begins at an older mark"
    assert log.seen(BFB, "image") == BROKEN
    assert report(READY, 7, 7) == "done", "a second record of the same report"
    assert report(BROKEN, 7, 6) == "refused"
    assert report(READY, 7, 8) == "unchanged"
    assert log.state.observed_before(1) == 8, "the mark moves even if nothing changes"
    assert report(READY, 0, 3, cause=2) == "unchanged", "each partition has its own mark"
    assert log.state.observed_before(2) == 3


def test_conditions_phases_and_causes_use_what_the_state_knows() -> None:
    log = with_image()
    assert conditions_of(KEY, world(log))[0].status == "Unknown"
    log.observe(BFB, "image", BROKEN)
    found = world(log)
    (ready,) = conditions_of(KEY, found)
    assert (ready.status, ready.message) == ("False", "BFB dpf/image is in phase Error: 404 Not Found")
    assert found.observed[KEY].fields["code"] == 404
    view = views.view(KEY, found)
    assert view is not None
    assert views.phase(KEY, view.row, (ready,), found) == "Error"
    of_set = ObjectId(LOCAL, DPU_SET, NAMESPACE, "set").key
    assert [cause.key for cause in blocked_by(of_set, found) if cause.is_root][:1] == [KEY]
    log.observe(BFB, "image", READY)
    assert conditions_of(KEY, world(log))[0].status == "True"


def test_the_journal_of_observations_has_the_keys_that_changed() -> None:
    log = with_image()
    before = log.state.observed_journal.revision
    log.observe(BFB, "image", READY)
    log.observe(BFB, "image", READY)
    assert log.state.observed_journal.since(before) == [KEY]
    assert log.state.journal.since(0) == [KEY, ObjectId(LOCAL, DPU_SET, NAMESPACE, "set").key]


def test_the_values_of_observations_follow_from_the_rows() -> None:
    log = with_image()
    log.observe(BFB, "image", BROKEN)
    log.observe(BFB, "other", READY)
    log.observe(BFB, "other", "")
    copy = ResourcesState()
    copy.observed.load(log.state.observed.rows.items())
    copy.rederive()
    assert copy.seen == log.state.seen == {KEY: Observation(False, "Error", "404 Not Found", BROKEN)}


def test_objects_in_a_dpu_cluster_have_its_name_as_source() -> None:
    log = with_image()
    name = f"east.{'n' * 63}.{'c' * 63}"
    assert log.observe("Node.core", "dpu-1", READY, source=name, namespaces=[""]).code == "done"
    assert log.observe("Node.core", "dpu-1", READY, source="east/other", namespaces=[""]).code == "refused"

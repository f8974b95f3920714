"""The resources fold compared with an independent model, at every position of random logs.

The model has one dict of objects, and looks for what refers to an object by reading every spec.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from projections.resources.state import ResourcesState
from schemas.events import ResourcesDeleted
from tests.support.delivered_machine import DELIVERIES, DeliveredMachine
from tests.support.resources import BFB, DPU_SET, NAMESPACE, DeliveredResources, bfb, dpu_set
from tests.support.sometimes import Sometimes, sized

NAMES = st.sampled_from(["a", "b", "c"])
FILES = st.sampled_from(["1", "2"])
EXPECTED = st.sampled_from([-1, -1, -1, 0, 1, 2])
SOMETIMES = Sometimes(
    "an object was created",
    "a spec changed",
    "nothing changed",
    "another generation was expected",
    "a deleted object could not change",
    "a deleted object stayed for its referrers",
    "a deleted object went with its last referrer",
    "an observation changed",
    "an observation was removed",
    "an observation was late",
    "a report began elsewhere than the last one ended",
    *DELIVERIES,
)


class Model:
    """Objects by kind and name: generation, spec, and whether each is deleted."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.observed: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        """The version of each observed object in which its observation was first reported."""
        self.mark = 0

    def apply(self, kind: str, name: str, spec: str, expected: int) -> str:
        found = self.objects.get((kind, name))
        if found is None:
            if expected > 0:
                return "refused"
            self.objects[kind, name] = {"generation": 1, "spec": spec, "deleted": False}
            return "done"
        if found["deleted"] or expected not in (-1, found["generation"]):
            return "refused"
        if found["spec"] == spec:
            return "unchanged"
        found |= {"generation": found["generation"] + 1, "spec": spec}
        self.sweep()
        return "done"

    def delete(self, kind: str, *names: str) -> None:
        for name in names:
            if (kind, name) in self.objects:
                self.objects[kind, name]["deleted"] = True
        self.sweep()

    def sweep(self) -> None:
        """Remove deleted objects without a referrer, until there is none."""
        while gone := [at for at, each in self.objects.items() if each["deleted"] and not self.is_used(*at)]:
            for at in gone:
                del self.objects[at]

    def used(self) -> list[str]:
        """The images that a DPUSet uses, sorted."""
        return sorted(name for kind, name in self.objects if self.is_used(kind, name))

    def is_used(self, kind: str, name: str) -> bool:
        specs = [json.loads(each["spec"]) for (of, _), each in self.objects.items() if of == DPU_SET]
        return kind == BFB and any(spec["dpuTemplate"]["spec"]["bfb"]["name"] == name for spec in specs)


class ResourcesMachine(DeliveredMachine):
    log: DeliveredResources
    sometimes = SOMETIMES

    def __init__(self) -> None:
        super().__init__()
        self.log = DeliveredResources()
        self.model = Model()

    @rule(name=NAMES, file=FILES, expected=EXPECTED)
    def apply_image(self, name: str, file: str, expected: int) -> None:
        self._apply(BFB, name, bfb(file), expected)

    @rule(name=NAMES, image=NAMES)
    def apply_set(self, name: str, image: str) -> None:
        self._apply(DPU_SET, name, dpu_set(image), -1)

    def _apply(self, kind: str, name: str, spec: str, expected: int) -> None:
        before = self.model.objects.get((kind, name))
        is_deleted = before is not None and before["deleted"]
        outcome = self.log.apply(kind, name, spec, expected=expected)
        assert outcome.code == self.model.apply(kind, name, spec, expected)
        if outcome.code != "refused":
            assert outcome.result == {"generation": self.model.objects[kind, name]["generation"]}
        SOMETIMES.saw("an object was created", before is None and outcome.code == "done")
        SOMETIMES.saw("a spec changed", before is not None and outcome.code == "done")
        SOMETIMES.saw("nothing changed", outcome.code == "unchanged")
        SOMETIMES.saw("another generation was expected", outcome.code == "refused" and not is_deleted)
        SOMETIMES.saw("a deleted object could not change", outcome.code == "refused" and is_deleted)

    @rule(kind=st.sampled_from([BFB, DPU_SET]), names=st.lists(NAMES, min_size=1, unique=True))
    def delete(self, kind: str, names: list[str]) -> None:
        self.delete_all(kind, names)

    def delete_all(self, kind: str, names: list[str]) -> None:
        waiting = {at for at, each in self.model.objects.items() if each["deleted"]}
        self.log.append(self.log.deleted([kind], names))
        self.model.delete(kind, *names)
        left = {at for at, each in self.model.objects.items() if each["deleted"]}
        SOMETIMES.saw("a deleted object stayed for its referrers", len(left - waiting))
        SOMETIMES.saw("a deleted object went with its last referrer", kind == DPU_SET and len(waiting - left))

    @rule(
        name=NAMES,
        text=st.sampled_from(["", '{"ready":true}', "{}"]),
        begin=st.integers(-1, 2),
        size=st.integers(-1, 2),
        version=st.integers(0, 3),
    )
    def observe(self, name: str, text: str, begin: int, size: int, version: int) -> None:
        """An observation; if `begin` is not negative, a report of zones partition 1, which mostly begins where the last
        one ended."""
        before, mark = (dict(self.model.observed), dict(self.model.versions)), self.model.mark
        first = mark + (begin - 1 if begin else 0)
        cause = {"cause_partition": 1, "from_offset": first, "to_offset": first + size} if begin >= 0 else {}
        outcome = self.log.observe(BFB, name, text, resource_versions=[version], **cause)
        if cause and (first != mark or size < 0):
            assert outcome.code == "refused"
            SOMETIMES.saw("a report began elsewhere than the last one ended", first != mark)
            return
        self.model.mark += size if cause else 0
        self._observed(name, text, version)
        is_same = before == (self.model.observed, self.model.versions)
        assert outcome.code == ("unchanged" if is_same else "done")

    def _observed(self, name: str, text: str, version: int) -> None:
        observed, versions = self.model.observed, self.model.versions
        is_late = 0 < version < versions.get(name, 0)
        SOMETIMES.saw("an observation was late", is_late)
        if is_late:
            return
        SOMETIMES.saw("an observation was removed", not text and name in observed)
        SOMETIMES.saw("an observation changed", bool(text) and observed.get(name, text) != text)
        if not text:
            observed.pop(name, None)
            versions.pop(name, None)
        elif observed.get(name) != text or not version:
            observed[name], versions[name] = text, version

    @precondition(lambda self: self.model.used())
    @rule(data=st.data())
    def change_a_used_image(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.model.used()))
        self.delete_all(BFB, [name])
        self._apply(BFB, name, bfb("1"), -1)
        self.delete_all(DPU_SET, data.draw(st.lists(NAMES, unique=True)) or [name])

    def another(self) -> ResourcesDeleted:
        return self.log.deleted([BFB], ["a"])

    @invariant()
    def equals_the_model(self) -> None:
        rows = self.log.state.objects.rows
        assert {
            (kind, name): {"generation": row.generation, "spec": row.spec, "deleted": row.deleted_ms > 0}
            for key, row in rows.items()
            for _, kind, _, name in [key.split("/")]
        } == self.model.objects

        observed = {key.rpartition("/")[2]: row for key, row in self.log.state.observed.rows.items()}
        assert {name: row.observation for name, row in observed.items()} == self.model.observed
        assert {name: row.version for name, row in observed.items()} == self.model.versions
        assert self.log.state.observed_before(1) == self.model.mark

    @invariant()
    def indexes_follow_from_the_rows(self) -> None:
        copy = ResourcesState()
        copy.objects.load(self.log.state.objects.rows.items())
        copy.observed.load(self.log.state.observed.rows.items())
        copy.rederive()
        assert copy.seen == self.log.state.seen
        for name in ("by_kind", "referrers", "host_namespaces"):
            kept, derived = getattr(self.log.state, name), getattr(copy, name)
            assert {key: set(found) for key, found in kept.items()} == {
                key: set(found) for key, found in derived.items()
            }

    def teardown(self) -> None:
        self.log.delivered.check_replicas()


TestResourcesMachine = sized(ResourcesMachine, 40, 40, SOMETIMES)


def test_the_namespace_is_part_of_the_identity() -> None:
    log = DeliveredResources()
    log.apply(BFB, "a", bfb("1"))
    log.apply(BFB, "a", bfb("2"), namespaces=["other"])
    assert [row.spec for row in log.state.objects.rows.values()] == [bfb("1"), bfb("2")]
    log.apply(DPU_SET, "s", dpu_set("a"), namespaces=["other"])
    log.delete(BFB, "a")
    assert log.row(BFB, "a") is None, f"a DPUSet of another namespace than {NAMESPACE} does not refer to it"

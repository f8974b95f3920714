"""What follows from the objects of 10,000 hosts with a DPU each, after one label of one host has changed.

The work is the update of the derivation; the peer is the derivation of everything, which a controller does that lists
all objects for each change. The label selects the host for another of ten DPUSets, so that its DPU changes. A change of
a label that no DPUSet names, and the same change among a tenth of the hosts, show that the work does not grow with the
fleet.
"""

from __future__ import annotations

from projections.resources.derivation import Derivation
from projections.resources.kinds import BFB, DPU, DPU_DEVICE, DPU_FLAVOR, DPU_NODE, DPU_SET
from projections.resources.state import Resource, ResourcesState
from tests.bench.figures import Figure, median_seconds
from tests.support.derivations import device, dpu_set, full, key, row

HOSTS = 10_000
SETS = 10
CHANGES = 1_000
AIM_MS = 5.0


def figures() -> list[Figure]:
    small, _ = _fleet(HOSTS // 10)
    state, derivation = _fleet(HOSTS)
    assert sum(each.at.kind == DPU for each in derivation.wanted()) == HOSTS
    whole_s = median_seconds(lambda: full(state), runs=3)
    other_ms = _change_ms(state, derivation, "note")
    moved_ms = _change_ms(state, derivation, "rack")
    small_ms = _change_ms(small, full(small), "rack")
    return [
        Figure("derive everything, 10,000 hosts", whole_s, "s", better="lower"),
        Figure(
            "one label moves a host to another DPUSet", moved_ms, "ms", whole_s * 1e3, "everything", AIM_MS, "lower"
        ),
        Figure("one label that no DPUSet names", other_ms, "ms", whole_s * 1e3, "everything", AIM_MS, "lower"),
        Figure("the same change, times that among 1,000 hosts", moved_ms / small_ms, "times", aim=2.0, better="lower"),
    ]


def _fleet(hosts: int) -> tuple[ResourcesState, Derivation]:
    """Hosts in racks, and a DPUSet for each rack."""
    rows: dict[str, Resource] = {
        key(BFB, "image"): row({"url": "https://images/a.bfb"}),
        key(DPU_FLAVOR, "flavor"): row(),
    }
    for number in range(SETS):
        selector = {"matchLabels": {"rack": f"{number}"}}
        rows[key(DPU_SET, f"set-{number}")] = dpu_set(dpuNodeSelector=selector)
    for number in range(hosts):
        rows[key(DPU_NODE, f"host-{number}")] = _host(number % SETS)
        rows[key(DPU_DEVICE, f"device-{number}")] = device(f"host-{number}")
    state = ResourcesState()
    state.apply(rows)
    return state, full(state)


def _host(rack: int, note: str = "") -> Resource:
    return row(labels={"rack": f"{rack}", "note": note})


def _change_ms(state: ResourcesState, derivation: Derivation, label: str) -> float:
    """The time of one change, from the new row in the state to the changed objects."""
    turns = 0

    def change() -> None:
        nonlocal turns
        turns += 1
        for number in range(CHANGES):
            rack = (number + turns) % SETS if label == "rack" else number % SETS
            rows = {key(DPU_NODE, f"host-{number}"): _host(rack, f"{turns}" if label == "note" else "")}
            state.apply(rows)
            changed = derivation.update(state, rows)
            assert len(changed) == (1 if label == "rack" else 0)

    return median_seconds(change, runs=3) / CHANGES * 1e3

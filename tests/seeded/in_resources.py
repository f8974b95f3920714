"""Bugs in the handover of wanted DPUs to their zones, in rollouts, in the maintenance of hosts, in the delivery of
network documents, and in DPU clusters.
"""

from __future__ import annotations

from typing import Any

import drivers.kubernetes.hosts.dpu_nodes
import projections.resources.control_planes.kamaji
import projections.resources.handover_needs
import projections.resources.placements
import projections.resources.rollouts.advance
from drivers.provisioning.cluster import ClusterNodes
from drivers.provisioning.maintenance import Maintenances
from drivers.relays.link_networks import LinkNetworks
from drivers.resources.networks import Networks
from projections.resources.handover import DpuForZone
from projections.resources.kinds import SERVICE
from projections.resources.state import Placement
from tests.seeded.bugs import Bug, SimulatedScenario, patched, returns
from tests.simulation.plan import with_rollouts


def _does_not_wait_for_the_drain(ensure: Any) -> Any:
    async def ensured(self: Maintenances, attempt: Any, facts: Any) -> None:
        return None

    return ensured


def _keeps_unwanted(proposed: Any) -> Any:
    def zone(told: Any, placement: Any) -> Any:
        return None if told is None and placement is not None else proposed(told, placement)

    return zone


def _moves_at_once(proposed: Any) -> Any:
    def zone(told: Any, placement: Any) -> Any:
        if placement is None or not isinstance(told, DpuForZone) or told.zone == placement.zone:
            return proposed(told, placement)
        return told.zone

    return zone


def _accepts_a_move(decided: Any) -> Any:
    def placed(state: Any, key: Any, zone: Any, added: Any, at: Any) -> Any:
        known = state.placements.rows.get(key)
        if known is None or zone in ("", known.zone):
            return decided(state, key, zone, added, at)
        return Placement(zone, at.offset, since_ms=at.time_ms)

    return placed


def _limit_one_more(limit: Any) -> Any:
    return lambda text, total: limit(text, total) + 1


def _reads_networks_once(read_networks: Any) -> Any:
    def read(self: Networks, source: str) -> bool:
        return source not in self._documents and read_networks(self, source)

    return read


def _sends_once(is_due: Any) -> Any:
    def is_new(self: LinkNetworks, state: Any, row: Any, now: float) -> bool:
        return row.version not in (state.sent, state.refused)

    return is_new


def _forgets_the_control_plane(control_plane: Any) -> Any:
    def kept(*about: Any) -> Any:
        return [each for each in control_plane(*about) if each.at.kind == SERVICE or not each.is_held]

    return kept


def _leaves_the_node(remove: Any) -> Any:
    async def removed(self: ClusterNodes, attempt: Any, cluster: str) -> None:
        return None

    return removed


BUGS = (
    Bug(
        "reboot-without-drain",
        "a host is rebooted without a maintenance that drains it",
        "I31",
        lambda: patched((Maintenances, "ensure", _does_not_wait_for_the_drain)),
        SimulatedScenario(2, faulty_s=60.0, plan=with_rollouts),
    ),
    Bug(
        "unwanted-dpu-left-behind",
        "a DPU stays in its zone after its DPUSet, host or device is deleted",
        "I31",
        lambda: patched((projections.resources.handover_needs, "_proposed", _keeps_unwanted)),
        SimulatedScenario(4, faulty_s=60.0, plan=with_rollouts, converges_within_s=90.0),
    ),
    Bug(
        "image-before-its-release",
        "a zone is told the wanted image of a DPU before the rollout has released the DPU to it",
        "I13",
        lambda: patched((projections.resources.handover_needs, "released", returns(None))),
        SimulatedScenario(4, faulty_s=60.0, plan=with_rollouts),
    ),
    Bug(
        "moved-before-it-is-deleted",
        "a DPU is placed in the new zone of its host while the old zone still has it",
        "I31",
        lambda: patched(
            (projections.resources.handover_needs, "_proposed", _moves_at_once),
            (projections.resources.placements, "_decided", _accepts_a_move),
        ),
        SimulatedScenario(6, faulty_s=60.0, plan=with_rollouts, converges_within_s=90.0),
    ),
    Bug(
        "rollout-one-dpu-too-many",
        "a rollout releases one DPU more than may be unavailable",
        "I13",
        lambda: patched((projections.resources.rollouts.advance, "scaled_max_unavailable", _limit_one_more)),
        SimulatedScenario(7, faulty_s=60.0, plan=with_rollouts),
    ),
    Bug(
        "join-without-a-ready-node",
        "a DPU joins its DPU cluster before its node is ready there",
        "I33",
        lambda: patched((drivers.kubernetes.hosts.dpu_nodes, "is_ready", returns(True))),
        SimulatedScenario(7, faulty_s=60.0, plan=with_rollouts, converges_within_s=90.0),
    ),
    Bug(
        "node-left-behind",
        "the node of a deleted DPU stays in its DPU cluster",
        "I33",
        lambda: patched((ClusterNodes, "remove", _leaves_the_node)),
        SimulatedScenario(8, faulty_s=60.0, plan=with_rollouts, converges_within_s=90.0),
    ),
    Bug(
        "control-plane-without-its-service",
        "a control plane is deleted while the port of its Service is not observed",
        "I33",
        lambda: patched((projections.resources.control_planes.kamaji, "_control_plane", _forgets_the_control_plane)),
        SimulatedScenario(7, faulty_s=60.0, plan=with_rollouts, converges_within_s=90.0),
    ),
    Bug(
        "networks-read-once",
        "a process reads the interfaces and chains of a source only when it first needs them",
        "I8",
        lambda: patched((Networks, "_read_networks", _reads_networks_once)),
        SimulatedScenario(3, faulty_s=60.0, plan=with_rollouts, converges_within_s=90.0),
    ),
    Bug(
        "refused-document-not-repeated",
        "a relay does not repeat a network document that the device failed to take",
        "I8",
        lambda: patched((LinkNetworks, "_is_due", _sends_once)),
        SimulatedScenario(7, faulty_s=100.0, plan=with_rollouts, converges_within_s=90.0),
    ),
)

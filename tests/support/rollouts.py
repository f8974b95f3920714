"""DPUSets, their drivers and the zones of their DPUs in one process: objects are applied, plans are derived and stated,
and DPUs are installed with what they are released to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from eventstore.folding.fold import Outcome
from projections.resources import kinds
from projections.resources.install_identity import install_identity
from projections.resources.live_derivation import LiveDerivation
from projections.resources.rollouts.planned import next_record, set_plan
from projections.resources.rollouts.released import released
from projections.resources.rollouts.rows import DpuRollout, Rollout
from projections.resources.rollouts.status import Status
from projections.resources.state import ObjectId
from schemas.events import DpusAllocated, Envelope, RolloutAdvanced, RolloutPlanned, RolloutRequested
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.resources import EAST, LOCAL, NAMESPACE, DeliveredResources

PLAIN = Envelope("", LOCAL, "driver", 1)
"""The envelope of a statement of the plane: it has no command id."""
RACK = "topology.kubernetes.io/rack"


def key_of(kind: str, name: str) -> str:
    return ObjectId(LOCAL, kind, NAMESPACE, name).key


def set_spec(image: str = "one", strategy: Mapping[str, Any] | None = None, **template: Any) -> str:
    """The spec of a DPUSet that selects every device."""
    given = {"bfb": {"name": image}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}} | template
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    return json.dumps({"strategy": strategy or rolling, "dpuNodeSelector": {}, "dpuTemplate": {"spec": given}})


class RollingFleet:
    """A resources partition with images `one`, `two` and `three`, and a DPUSet `set` of DPUs `h<n>-d`."""

    def __init__(self, hosts: int = 0, *, log: DeliveredResources | None = None, **annotations: str) -> None:
        self.log = log or DeliveredResources()
        self.live = LiveDerivation(10_000)
        self.images: dict[str, str] = {}
        """The image of each DPU that its zone works on."""
        self.handed: list[tuple[str, str]] = []
        """Each DPU and image that its zone was told, in order."""
        for image in ("one", "two", "three"):
            self.log.apply(kinds.BFB, image, json.dumps({"url": f"http://images/{image}.bfb"}))
            self.log.observe(kinds.BFB, image, '{"ready":true}')
        self.log.apply(kinds.DPU_FLAVOR, "flavor", "{}")
        for number in range(hosts):
            self.add_host(number)
        self.annotations = {f"dpuplane.io/rollout-{name.replace('_', '-')}": text for name, text in annotations.items()}

    def add_host(self, number: int, rack: str = "") -> None:
        labels = {RACK: rack or f"r{number // 4}"}
        self.log.apply(kinds.DPU_NODE, f"h{number:02}", "{}", labels=[labels])
        spec = json.dumps({"serialNumber": f"s{number}"})
        self.log.apply(kinds.DPU_DEVICE, f"d{number:02}", spec, labels=[{DPU_NODE_NAME: f"h{number:02}"}])

    def apply_set(self, image: str = "one", *, name: str = "set", **fields: Any) -> Outcome:
        spec = set_spec(image, **fields)
        return self.log.apply(kinds.DPU_SET, name, spec, annotations=[self.annotations])

    @property
    def rollout(self) -> Rollout:
        return self.log.state.rollouts.rows[key_of(kinds.DPU_SET, "set")]

    @property
    def counts(self) -> dict[str, int]:
        """The number of DPUs of the set by status, without those that are zero."""
        index = self.log.state.rollout_index.of(key_of(kinds.DPU_SET, "set"))
        return {Status(status).name: count for status, count in sorted(index.counts.items()) if count}

    def dpu(self, number: int) -> DpuRollout:
        return self.log.state.dpu_rollouts.rows[self.dpu_key(number)]

    def dpu_key(self, number: int) -> str:
        return key_of(kinds.DPU, f"h{number:02}-d{number:02}")

    def updated(self, image: str = "two") -> list[int]:
        """The numbers of the DPUs that are released to an image."""
        rows = self.log.state.dpu_rollouts.rows.items()
        return sorted(int(key[-2:]) for key, row in rows if row.released.startswith(f"{image}/"))

    def plan(self, name: str = "set", position: int | None = None) -> list[Outcome]:
        """State what the fold lacks of the plan, as the driver does."""
        self._derive()
        state, outcomes = self.log.state, []
        plan = set_plan(state, self.live.derivation, key_of(kinds.DPU_SET, name))
        at = self.log.delivered.end if position is None else position
        while plan is not None and (event := next_record(self.log.state, plan, at, PLAIN)) is not None:
            outcomes.append(self.log.append(event))
            if outcomes[-1].code == "refused":
                break
        return outcomes

    def _derive(self) -> None:
        while not self.live.advance(self.log.state):
            pass

    def advance(self, name: str = "set") -> Outcome:
        return self.log.append(RolloutAdvanced(PLAIN, LOCAL, [NAMESPACE], [name]))

    def request(self, verb: str, revision: int = 0, kind: str = kinds.DPU_SET, name: str = "set") -> Outcome:
        return self.log.append(RolloutRequested(self.log.envelope(), LOCAL, kind, NAMESPACE, name, verb, revision))

    def allocate(self, name: str, cluster: str, position: int | None = None) -> Outcome:
        at = self.log.delivered.end if position is None else position
        return self.log.append(
            DpusAllocated(PLAIN, LOCAL, at, [NAMESPACE], [name], [cluster and f"{NAMESPACE}/{cluster}"])
        )

    def hand_over(self) -> list[str]:
        """Tell zones what DPUs are released to, if it is still wanted. Returns the DPUs that begin an installation."""
        self._derive()
        state, derivation, begun = self.log.state, self.live.derivation, []
        for dpu, wanted in sorted(derivation.dpus.winners.items()):
            identity = install_identity(state, wanted)
            if identity is None or released(state, dpu) not in (None, identity) or self.images.get(dpu) == identity:
                continue
            self.images[dpu] = identity
            self.handed.append((dpu, identity))
            self._observe(dpu, ready=False, phase="OS Installing", installed="")
            begun.append(dpu)
        return begun

    def install(self, dpu: str, *, fails: bool = False) -> None:
        """End the installation of a DPU."""
        if fails:
            self._observe(dpu, ready=False, phase="Error", installed="", message="the BMC does not answer")
        else:
            self._observe(dpu, ready=True, phase="Ready", installed=self.images[dpu])

    def break_down(self, dpu: str) -> None:
        """An installed DPU is not ready any more."""
        self._observe(dpu, ready=False, phase="Ready", installed=self.images[dpu], message="its node is not ready")

    def _observe(self, dpu: str, **fields: Any) -> None:
        text = json.dumps(fields | {"image": self.images[dpu]})
        self.log.observe(kinds.DPU, dpu.rpartition("/")[2], text)

    def settle(self) -> None:
        """Plan, and install every DPU that begins, until nothing is to be done."""
        while True:
            self.plan()
            self.advance()
            begun = self.hand_over()
            for dpu in begun:
                self.install(dpu)
            if not begun and self.advance().code == "unchanged":
                return

    def pass_time(self, seconds: float) -> None:
        self.log.now_ms += int(seconds * 1_000)


def plan_in_kubernetes(log: DeliveredResources, identity: str) -> Outcome:
    """State the plan of a DPUSet of Kubernetes with strategy OnDelete and one DPU: it shall have this image."""
    if log.row(kinds.DPU_SET, "set", EAST) is None:
        log.report(kinds.DPU_SET, "set", set_spec(strategy={"type": "OnDelete"}), uid="s", generation=1)
    return log.append(dpu_plan(identity, log.delivered.end))


def dpu_plan(identity: str, position: int) -> RolloutPlanned:
    """A plan of one DPU, which has this image once it is deleted."""
    fields: dict[str, Any] = {"strategy": "OnDelete", "max_unavailable": "1", "waves": ["100%"], "failure_budget": ""}
    fields |= {"template": json.dumps({"bfb": identity}), "stated": "{}", "bake_ms": 0, "is_paused": False, "digest": 0}
    columns: dict[str, Any] = {"dpus": ["d"], "identities": [identity], "wave_numbers": [0], "groups": [0]}
    at: dict[str, Any] = {"source": EAST, "namespace": NAMESPACE, "name": "set", "deployment": "", "position": position}
    return RolloutPlanned(PLAIN, **at, **fields, **columns)

"""The source cluster of a run: a simulated API server, its Nodes, and the people and programs that change them.

The workload is drawn from the seed, action by action. A Node joins, leaves, moves to another zone, changes its address,
or is created again under its name. Users create and edit policies, and delete objects that the plane writes. Every
commit is recorded in the history.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from commands.kubernetes.node_facts import NodeRules
from commands.kubernetes.users import UserNames, parse_users
from deploy.composition.kubernetes_edge import NODES, EdgeSettings
from projections.kubernetes.status_body import Document
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.kubernetes.objects import RACK_LABEL
from schemas.resources import KINDS
from schemas.resources.author_admission import AUTHOR, author_binding, author_policy
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold_admission import hold_binding, hold_policy
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY
from tests.simulation.dra_driver import NAMESPACE, DraDriver
from tests.simulation.history import (
    FinalObject,
    History,
    NodeCommitted,
    NodesHidden,
    ServerRestored,
    SpecCommitted,
    StatusCommitted,
)
from tests.simulation.network import Wire
from tests.simulation.plan import ClusterPlan
from tests.simulation.script import Director
from tests.simulation.wired_api import WiredApi
from tests.support.kubernetes.requests import create, install
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.simulated.kinds import Collection, Object
from tests.support.kubernetes.simulated.store import Saved
from tests.support.virtual_loop import current_loop

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CLUSTER = "cluster"
"""The author of the workload's actions."""
SOURCE = "east"
HOSTS = [f"host-{number}" for number in range(40)]
POLICY_NAMES = ("p0", "p1", "edge-policy", "edge-web")
AUTHORS = ("ann@example.org", "ben@example.org", "ann@example.org", "nobody")
"""The users in the annotations of specs. The last one is no person that the plane knows."""
STATUS_WRITTEN = "status written"
WITH_STATUS = (*KINDS, COMPUTE_DOMAIN)
"""The kinds of which the plane writes the status."""
LABEL_VALUES = ("web", "db", "gold")
ACTION_WEIGHTS = {
    "create_node": 14,
    "delete_node": 5,
    "recreate_node": 5,
    "relabel_node": 8,
    "readdress_node": 4,
    "change_label": 3,
    "heartbeat": 4,
    "create_nodes": 1,
    "delete_nodes": 1,
    "create_policy": 3,
    "edit_policy": 2,
    "delete_policy": 1,
    "delete_rack": 1,
}
"""The relative frequency of each action. An action names the method of `SourceCluster` that performs it."""


class SourceCluster:
    """One source cluster and its API server."""

    def __init__(
        self, zones: Sequence[str], history: History, rng: random.Random, plan: ClusterPlan, *, epoch_s: int
    ) -> None:
        self.api = SimulatedApi(rng, epoch_s=epoch_s)
        self.api.on_write = self._record
        users = parse_users(SOURCE, "*@example.org=*")
        assert isinstance(users, UserNames)
        self.settings = EdgeSettings(
            nodes=NodeRules(source=SOURCE, labels=("role", "tier")),
            has_status=True,
            users=users,
            cliques=plan.cliques,
            driver_namespace=NAMESPACE,
        )
        self.driver: DraDriver | None = None
        if plan.cliques is not None:
            driver_rng = random.Random(f"{rng.getrandbits(64)}")
            self.driver = DraDriver(
                self.api,
                SOURCE,
                history,
                driver_rng,
                pause_s=plan.pause_s,
                mode=plan.cliques,
                has_switch=plan.switches_mode,
            )
        self._zones = (*zones, "rack-a")
        self._history = history
        self._rng = rng
        self._pause_s = plan.pause_s
        self._hidden: tuple[float, frozenset[str]] | None = None

    @asynccontextmanager
    async def connect(self, wire: Wire, writer: str) -> AsyncIterator[KubernetesApi]:
        """The API server as an instance of a process reaches it."""
        if self.driver is not None and self.settings.cliques is not None:
            self.driver.modes[writer] = self.settings.cliques
        yield WiredApi(self.api, wire, writer)

    async def begin(self) -> None:
        """Install the definitions, and create the first Nodes."""
        await install(self.api, *map(definition, KINDS))
        for policy in (author_policy(), hold_policy()):
            await create(self.api, f"{ADMISSION}/validatingadmissionpolicies", policy)
        for binding in (author_binding(), hold_binding()):
            await create(self.api, f"{ADMISSION}/validatingadmissionpolicybindings", binding)
        for name in HOSTS[:6]:
            await self._create(name)
        if self.driver is not None:
            await self.driver.begin()

    async def run(self, director: Director, seed: int) -> None:
        """Change objects until cancelled."""
        async for action in director.actions(CLUSTER, self._draw):
            self._rng = action.rng(seed)
            try:
                action.description = await getattr(self, f"_{action.what}")() or ""
            except ApiError as error:
                action.description = f"refused: {error}"

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), rng.choices(list(ACTION_WEIGHTS), list(ACTION_WEIGHTS.values()))[0]

    # -- faults

    def restore(self, saved: Saved, *, ends_watches: bool) -> list[str]:
        """Go back to a saved state; returns the names of the Nodes that exist no more."""
        before, version = self.api.objects(NODES), self.api.version
        self.api.restore(saved, ends_watches=ends_watches)
        after = self.api.objects(NODES)
        at_s = current_loop().time()
        self._history.add(ServerRestored(at_s, SOURCE, version, self.api.version))
        for name in sorted(before.keys() | after.keys()):
            if (lost := before.get(name)) is not None and _uid(lost) != _uid(after.get(name)):
                self._add_node(lost, "lost")
            if (found := after.get(name)) is not None and before.get(name) != found:
                self._add_node(found, "restored")
        return sorted(name for name in before if name not in after)

    def hide(self, names: frozenset[str]) -> None:
        """Leave these Nodes out of every list, until `show_all`."""
        self.show_all()
        self._hidden = current_loop().time(), names
        self.api.faults.shown = lambda path, items: (
            [item for item in items if item["metadata"]["name"] not in names] if path == NODES else items
        )
        self.api.expire_watches()

    def show_all(self) -> None:
        """Show every Node again. The watches end, as they do when a faulty API server restarts."""
        if self._hidden is None:
            return
        from_s, names = self._hidden
        self._hidden = None
        self._history.add(NodesHidden(from_s, current_loop().time(), SOURCE, names))
        self.api.faults.shown = None
        self.api.expire_watches()

    def heal(self) -> None:
        """End all faults. After a restore, the watches expire: a watch that was interrupted while the server passed its
        former version again misses the changes before that, and only the next hourly list would find them.
        """
        self.show_all()
        self.api.faults.clear()
        if self._history.of(ServerRestored):
            self.api.expire_watches()

    @property
    def node_names(self) -> list[str]:
        return sorted(self.api.objects(NODES))

    async def create_again(self, names: Sequence[str]) -> None:
        """Create Nodes again, as their kubelets do after a restore. An existing Node stays."""
        for name in names:
            try:
                await self._create(name)
            except ApiError:
                continue

    # -- Nodes

    async def _create_node(self) -> str:
        name = self._rng.choice(HOSTS)
        await self._create(name)
        return name

    async def _create_nodes(self) -> str:
        for name in self._rng.sample(HOSTS, 12):
            if name not in self.api.objects(NODES):
                await self._create(name)
        return ""

    async def _create(self, name: str) -> None:
        labels = {"role": self._rng.choice(LABEL_VALUES)} | self._zone_labels()
        made = await create(self.api, NODES, {"metadata": {"name": name, "labels": labels}})
        await self._set_address(made["metadata"]["name"])

    def _zone_labels(self) -> dict[str, str]:
        return {RACK_LABEL: self._rng.choice(self._zones)} if self._rng.random() < 0.95 else {}

    async def _delete_node(self) -> str:
        name = self._present()
        if name and len(self.api.objects(NODES)) > 1:
            await self._delete(NODES, name)
        return name

    async def _delete_nodes(self) -> str:
        for _ in range(4):
            await self._delete_node()
        return ""

    async def _recreate_node(self) -> str:
        name = self._present()
        if name:
            await self._delete(NODES, name)
            await self._create(name)
        return name

    async def _relabel_node(self) -> str:
        return await self._patch_node(self._zone_labels() or {RACK_LABEL: None})

    async def _change_label(self) -> str:
        return await self._patch_node({self._rng.choice(("role", "tier", "ignored")): self._rng.choice(LABEL_VALUES)})

    async def _heartbeat(self) -> str:
        name = self._present()
        beat = {"conditions": [{"type": "Ready", "lastHeartbeatTime": str(self._rng.random())}]}
        if name:
            await self.api.patch(f"{NODES}/{name}/status", {"status": beat}, "merge")
        return name

    async def _readdress_node(self) -> str:
        name = self._present()
        if name:
            await self._set_address(name)
        return name

    async def _patch_node(self, labels: Mapping[str, Any]) -> str:
        name = self._present()
        if name:
            await self.api.patch(f"{NODES}/{name}", {"metadata": {"labels": dict(labels)}}, "merge")
        return f"{name} {labels}"

    async def _set_address(self, name: str) -> None:
        address = f"10.0.{self._rng.choice((0, 1, 2))}.{self._rng.randint(1, 60)}"
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        await self.api.patch(f"{NODES}/{name}/status", {"status": status}, "merge")

    def _present(self) -> str:
        return self._rng.choice(self.node_names or [""])

    # -- the plane's own kinds

    async def _create_policy(self) -> str:
        name, spec = self._rng.choice(POLICY_NAMES), self._policy_spec()
        await create(self.api, RULE_POLICY.path(), {"metadata": {"name": name, **self._author()}, "spec": spec})
        return name

    async def _edit_policy(self) -> str:
        name = self._rng.choice(POLICY_NAMES)
        body = {"metadata": self._author(), "spec": self._policy_spec()}
        await self.api.patch(RULE_POLICY.path(name=name), body, "merge")
        return name

    def _author(self) -> dict[str, Any]:
        return {"annotations": {AUTHOR: self._rng.choice(AUTHORS)}}

    async def _delete_policy(self) -> str:
        return await self._delete_any(RULE_POLICY)

    async def _delete_rack(self) -> str:
        return await self._delete_any(DPU_RACK)

    def _policy_spec(self) -> dict[str, Any]:
        state = "Absent" if self._rng.random() < 0.1 else "Present"
        return {"state": state, "priority": self._rng.randrange(30), "action": self._rng.choice(("allow", "drop"))}

    async def _delete_any(self, kind: Kind) -> str:
        names = sorted(self.api.objects(kind.path()))
        name = self._rng.choice(names) if names else ""
        if name:
            await self._delete(kind.path(), name)
        return name

    async def _delete(self, path: str, name: str) -> None:
        found = self.api.objects(path).get(name)
        if found is not None:
            await self.api.delete(f"{path}/{name}", uid=found["metadata"]["uid"])

    # -- the history

    def _record(self, collection: Collection, before: Object | None, after: Object | None) -> None:
        if collection.plural == "nodes":
            self._record_node(before, after)
        elif collection.plural == COMPUTE_DOMAIN_CLIQUE.plural and self.driver is not None:
            self.driver.record(before, after)
        elif after is not None and collection.plural == RULE_POLICY.plural and _stated(before) != _stated(after):
            self._record_spec(after)
        elif before is None or after is None or all(kind.plural != collection.plural for kind in WITH_STATUS):
            return
        elif before is after or before.get("status") != after.get("status"):
            self._record_status(collection.plural, before, after)

    def _record_spec(self, policy: Object) -> None:
        about, at_s = policy["metadata"], current_loop().time()
        self._history.add(SpecCommitted(at_s, SOURCE, about["name"], about["uid"], *_stated(policy)))
        self._history.note(at_s, "spec written", about["name"])

    def _record_node(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._add_node(after, "present")
        elif before is not None:
            self._add_node(before, "deleted")

    def _add_node(self, node: Object, state: Any) -> None:
        about, at_s = node["metadata"], current_loop().time()
        zone = (about.get("labels") or {}).get(RACK_LABEL) or self.settings.nodes.fallback_zone
        entry = NodeCommitted(
            at_s,
            SOURCE,
            about["name"],
            about["uid"],
            round(datetime.fromisoformat(about["creationTimestamp"]).timestamp() * 1000),
            zone,
            state,
            self.api.version,
        )
        self._history.add(entry)
        self._history.note(at_s, f"node {state}", entry.name, entry.uid, zone)

    def _record_status(self, plural: str, before: Object, after: Object) -> None:
        about, at_s = after["metadata"], current_loop().time()
        statuses: tuple[Document, Document] = before.get("status") or {}, after.get("status") or {}
        self._history.add(
            StatusCommitted(at_s, SOURCE, plural, about["name"], about["uid"], dict(statuses[0]), dict(statuses[1]))
        )
        self._history.note(at_s, STATUS_WRITTEN, plural, about["name"], about["resourceVersion"])

    def final_objects(self) -> list[FinalObject]:
        """The objects of the plane's own kinds, and those of cliques."""
        found = [
            FinalObject(SOURCE, kind.plural, name, body)
            for kind in KINDS
            for name, body in sorted(self.api.objects(kind.path()).items())
        ]
        return found + (self.driver.final_objects() if self.driver is not None else [])


def _stated(policy: Object | None) -> tuple[dict[str, Any], str]:
    """The spec of a policy, and its author."""
    if policy is None:
        return {}, ""
    return dict(policy["spec"]), str((policy["metadata"].get("annotations") or {}).get(AUTHOR, ""))


def _uid(node: Object | None) -> str:
    return str(node["metadata"]["uid"]) if node is not None else ""

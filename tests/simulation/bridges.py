"""The bridges of agents in a run: models of Open vSwitch that the production backend keeps over OpenFlow.

A bridge outlives its agent. It may stop and lose its flows, be changed by another program, refuse bundles, and be
silent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from drivers.backends.openvswitch import OpenVSwitch
from drivers.openflow import messages as of
from drivers.openflow.messages import Flow
from drivers.openflow.rule_flows import COOKIE, COOKIE_MASK, FlowComparison, priorities_found
from projections.rules.device_table import DeviceTable
from tests.simulation.agents import Held, rules_of
from tests.support.model_switch import ModelSwitch
from tests.support.openvswitch import LAYOUT
from tests.support.virtual_loop import current_loop

CHANGES_MAX = 20
"""The maximum number of restarts and changes of a bridge, less than an agent repairs in an hour."""
_FOREIGN = Flow(0, 5, 0x77, of.field(5, b"\x08\x06"), of.apply_actions(of.output(of.NORMAL)))
"""A flow of another program."""


class Bridge:
    """A bridge, and the device of the agent that has started last."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.changes = 0
        self.switch = ModelSwitch(lambda: rng.uniform(0.000_1, 0.002))
        self.device: OpenVSwitch
        self._name = name
        self._rng = rng
        self._socket = Path(f"/{name}.mgmt")
        self.start_switch()

    def connect(self) -> OpenVSwitch:
        """The bridge as a new agent has it."""
        current_loop().listeners[self._socket] = self.switch.listener
        self.device = OpenVSwitch(self._socket, LAYOUT, rng=random.Random(self._rng.getrandbits(64)))
        return self.device

    def held(self, table: DeviceTable) -> Held:
        """The table that the flows of the plane amount to, if the agent has `table`. Its rules are known only if it is
        that one."""
        own = [flow for flow in self.switch.flows.values() if flow.cookie & COOKIE_MASK == COOKIE]
        if not table.version and not own:
            return Held(table.digest, rules_of(table))
        priorities = priorities_found({flow.cookie: flow.priority for flow in own}, table.rules)
        found = FlowComparison(table, priorities.of_rules, LAYOUT)
        for flow in own:
            found.add(flow)
        return Held(found.digest(), rules_of(table) if not found.differences else None)

    def faults(self) -> Iterator[str]:
        """What the plane did to flows that are not its own."""
        others = [flow for flow in self.switch.flows.values() if flow.cookie & COOKIE_MASK != COOKIE]
        if self.switch.is_up and others != [_FOREIGN]:
            yield f"{self._name}: the flows of another program have become {others}"

    # --- faults

    def stop_switch(self) -> None:
        """Stop the switch, which loses its flows."""
        self.changes += 1
        self.switch.stop()

    def start_switch(self) -> None:
        """Start the switch, in which another program puts its flow."""
        self.switch.is_up = True
        self.switch.flows[_FOREIGN.table, _FOREIGN.priority, _FOREIGN.match] = _FOREIGN

    def change_flows(self, rng: random.Random) -> str:
        """Change the flows of the plane, as a faulty program would. Returns what was done."""
        self.changes += 1
        flows = self.switch.flows
        own = [key for key, flow in flows.items() if flow.cookie & COOKIE_MASK == COOKIE]
        what = rng.choice(("deleted", "altered", "added", "flushed") if own else ("added",))
        chosen: Sequence[tuple[int, int, bytes]] = own if what == "flushed" else [rng.choice(own)] if own else []
        match what:
            case "added":
                stray = Flow(
                    LAYOUT.table, 60_000 + rng.randrange(100), COOKIE | rng.getrandbits(32), b"", LAYOUT.allowed
                )
                flows[stray.table, stray.priority, stray.match] = stray
            case "altered":
                for key in chosen:
                    flow = flows[key]
                    flows[key] = flow._replace(instructions=b"" if flow.instructions else LAYOUT.allowed)
            case _:
                for key in chosen:
                    del flows[key]
        return what

    def heal(self) -> None:
        """End all faults."""
        self.switch.is_silent, self.switch.refuse_next = False, 0
        if not self.switch.is_up:
            self.start_switch()

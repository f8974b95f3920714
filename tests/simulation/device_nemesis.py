"""Faults of the modelled devices of a run: of the bridges of agents, and of BMCs that speak Redfish."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from tests.simulation.bridges import CHANGES_MAX, Bridge
from tests.simulation.history import History
from tests.simulation.redfish_bmcs import WatchedBmc
from tests.simulation.script import Action, Director
from tests.support.virtual_loop import current_loop

NAME = "devices"
WEIGHTS = {
    "restart_switch": 3,
    "change_flows": 3,
    "refuse_bundles": 3,
    "silence_switch": 1,
    "restart_bmc": 3,
    "cut_power": 3,
    "hang_bmc": 1,
}
"""The relative frequency of each kind of fault. A kind names the method that injects it."""
COUNTED = (
    "switch restarted",
    "flows changed",
    "bundles refused",
    "switch silent",
    "BMC restarted",
    "power of a card lost",
    "BMC hangs",
)
"""The names under which faults are counted."""


class DeviceNemesis:
    """Injects faults until cancelled."""

    def __init__(
        self, bridges: Mapping[str, Bridge], bmcs: Mapping[str, WatchedBmc], history: History, every_s: float
    ) -> None:
        self._bridges = bridges
        self._bmcs = bmcs
        self._history = history
        self._every_s = every_s

    async def run(self, director: Director, seed: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for action in director.actions(NAME, self._draw):
                tasks.create_task(self._inject(action, action.rng(seed)))

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._every_s), rng.choices([*WEIGHTS], [*WEIGHTS.values()])[0]

    async def _inject(self, action: Action, rng: random.Random) -> None:
        name = action.description = rng.choice([*self._bridges])
        await getattr(self, f"_{action.what}")(name, rng)

    def _note(self, what: str, *details: object) -> None:
        assert what in COUNTED
        self._history.note(current_loop().time(), what, *details)

    # --- bridges

    async def _restart_switch(self, name: str, rng: random.Random) -> None:
        bridge = self._bridges[name]
        if bridge.changes >= CHANGES_MAX or not bridge.switch.is_up:
            return
        self._note("switch restarted", name, len(bridge.switch.flows))
        bridge.stop_switch()
        await asyncio.sleep(rng.expovariate(1 / 2.0))
        bridge.start_switch()

    async def _change_flows(self, name: str, rng: random.Random) -> None:
        bridge = self._bridges[name]
        if bridge.changes < CHANGES_MAX and bridge.switch.is_up:
            self._note("flows changed", name, bridge.change_flows(rng))

    async def _refuse_bundles(self, name: str, rng: random.Random) -> None:
        switch = self._bridges[name].switch
        refused, switch.refuse_next = switch.refused, rng.choice((1, 2, 5))
        await asyncio.sleep(rng.uniform(5.0, 30.0))
        switch.refuse_next = 0
        if switch.refused > refused:
            self._note("bundles refused", name, switch.refused - refused)

    async def _silence_switch(self, name: str, rng: random.Random) -> None:
        switch = self._bridges[name].switch
        self._note("switch silent", name)
        switch.is_silent = True
        await asyncio.sleep(rng.choice((2.0, 8.0, 20.0)))
        switch.is_silent = False

    # --- BMCs

    async def _restart_bmc(self, name: str, rng: random.Random) -> None:
        bmc = self._bmcs[name]
        self._note("BMC restarted", name, bmc.card.is_busy)
        bmc.restart()

    async def _cut_power(self, name: str, rng: random.Random) -> None:
        bmc = self._bmcs[name]
        self._note("power of a card lost", name, bmc.card.is_busy)
        bmc.lose_power()

    async def _hang_bmc(self, name: str, rng: random.Random) -> None:
        self._note("BMC hangs", name)
        self._bmcs[name].faults.plan("hang", times=rng.choice((1, 3)))

"""Bugs in the drivers of real devices: of bridges, and of BMCs that speak Redfish."""

from __future__ import annotations

from typing import Any

import drivers.redfish.update_moves
from drivers.backends.openvswitch import OpenVSwitch
from drivers.provisioning.provisioner import Provisioner
from drivers.redfish.update_moves import Done
from tests.seeded.bugs import Bug, SimulatedScenario, patched, returns
from tests.simulation.plan import Plan, with_models

FAULTY_S = 60.0
CONVERGES_S = 300.0


def _lying(seed: int, faulty_s: float) -> Plan:
    """A plan whose BMCs lie about most installations."""
    plan = with_models(seed, faulty_s)
    return plan._replace(bmcs=plan.bmcs._replace(lie=0.7, pace=0.2))


def _without_waiting(_: Any) -> Any:
    async def appended(self: Provisioner, step: Any, event: Any) -> bool:
        await self.internal_events.append(step.partition, step.dpu.zone, event)
        return True

    return appended


def _only_once(read: Any) -> Any:
    async def compared(
        self: OpenVSwitch, session: Any, table: Any, *, is_repair: bool = False, is_fill: bool = False
    ) -> int:
        if self._priorities is None:
            found: int = await read(self, session, table, is_repair=is_repair, is_fill=is_fill)
            return found
        self._digest = table.digest
        return 0

    return compared


BUGS = (
    Bug(
        "lie-believed",
        "an installation is done as soon as the BMC reports its task as completed",
        "I34",
        lambda: patched((drivers.redfish.update_moves, "_verified", returns(Done()))),
        SimulatedScenario(8, FAULTY_S, CONVERGES_S, plan=_lying),
    ),
    Bug(
        "update-not-announced",
        "a BMC is told to install before the log shows that it will be told",
        "I34",
        lambda: patched((Provisioner, "_append_progress", _without_waiting)),
        SimulatedScenario(25, FAULTY_S, CONVERGES_S, plan=with_models),
    ),
    Bug(
        "flows-read-once",
        "a bridge is not read again while its session lasts",
        "I8",
        lambda: patched((OpenVSwitch, "_read", _only_once)),
        SimulatedScenario(1, FAULTY_S, CONVERGES_S, plan=with_models),
    ),
)

"""Runs the contract of switches on a bridge of Open vSwitch, and on the model of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from deploy.host.openvswitch import Switch
from drivers.openflow.session import SwitchSession
from tests.contract.switch import Scenario, SwitchContract
from tests.support.model_switch import ModelSwitch
from tests.support.openvswitch import switch_folder
from tests.support.virtual_loop import current_loop, run_virtual

MODEL = Path("/model.mgmt")


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with switch_folder() as found:
        yield found


async def in_session(path: Path, scenario: Scenario) -> None:
    """Run a scenario with a session with the bridge at this socket."""
    session = await SwitchSession.open(path)
    serving = asyncio.create_task(session.serve())
    try:
        await scenario(session)
        assert not serving.done(), "nothing ends the session"
    finally:
        serving.cancel()
        await asyncio.wait({serving})


class TestOpenVSwitch(SwitchContract):
    _names: ClassVar = count(1)

    @pytest.fixture(autouse=True)
    def _with_switch(self, switch: Switch) -> None:
        self._switch = switch

    def with_session(self, scenario: Scenario) -> None:
        bridge = f"s{next(self._names)}"
        self._switch.add_bridge(bridge)
        asyncio.run(in_session(self._switch.socket(bridge), scenario))


class TestModelSwitch(SwitchContract):
    def with_session(self, scenario: Scenario) -> None:
        async def run() -> None:
            current_loop().listeners[MODEL] = ModelSwitch(lambda: 0.001).listener
            await in_session(MODEL, scenario)

        run_virtual(run())

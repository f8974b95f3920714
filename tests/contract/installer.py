"""The contract of the installers of DPUs with the provisioner: an attempt may end anywhere, and nothing begins twice.

What it does not exclude, for a device that knows no attempts: one request of an attempt that was thought lost may
take effect before its successor has ended its session. The successor then finds the task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import pytest

from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.provisioning.attempts import AttemptSuperseded
from projections.zones.dpus.phases import OS_INSTALLING, REBOOTING

CALLS_MAX = 300
"""More calls than any step makes."""


class InstalledDpu(Protocol):
    """A DPU whose image is to be installed, with the log of its attempts."""

    @property
    def installs(self) -> int:
        """The number of installations that have begun on the device."""
        ...

    @property
    def restarts(self) -> int:
        """The number of restarts that were asked for."""
        ...

    @property
    def has_image(self) -> bool:
        """Whether the device runs the image."""
        ...

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        ...

    async def run(self, *, stop_after: int = 1_000_000) -> Mapping[str, str]:
        """Run the next attempt. After `stop_after` checks another actor owns the step."""
        ...

    def fail_next(self, how: str) -> None:
        """Let the next task fail (fail), or end as done without an effect (lie)."""
        ...

    def exchange(self) -> None:
        """Put another card in its place."""
        ...


class InstallerContract(ABC):
    """Each scenario gets a DPU before its installation, on a virtual clock."""

    @abstractmethod
    async def dpu(self) -> InstalledDpu: ...

    async def test_an_installation_ends_with_its_image(self) -> None:
        dpu = await self.dpu()
        dpu.enter(OS_INSTALLING)
        facts = await dpu.run()
        assert facts["image"]
        assert facts["serial"]
        assert (dpu.has_image, dpu.installs) == (True, 1)

    @pytest.mark.parametrize("phase", [OS_INSTALLING, REBOOTING])
    async def test_an_attempt_may_end_at_any_call_and_its_successor_begins_nothing_again(self, phase: str) -> None:
        for calls in range(1, CALLS_MAX):
            dpu = await self.dpu()
            if phase == REBOOTING:
                dpu.enter(OS_INSTALLING)
                await dpu.run()
            dpu.enter(phase)
            before = (dpu.installs, dpu.restarts)
            try:
                await dpu.run(stop_after=calls)
                return
            except AttemptSuperseded:
                await dpu.run()
            begun = (dpu.installs - before[0], dpu.restarts - before[1])
            assert begun == ((1, 0) if phase == OS_INSTALLING else (0, 1))
            assert dpu.has_image
        pytest.fail("the step makes more calls than expected")

    @pytest.mark.parametrize("how", ["fail", "lie"])
    async def test_a_failed_task_is_told_and_the_next_attempt_begins_anew(self, how: str) -> None:
        dpu = await self.dpu()
        dpu.enter(OS_INSTALLING)
        dpu.fail_next(how)
        with pytest.raises(TaskFailed, match=r"^(task|image): "):
            await dpu.run()
        await dpu.run()
        assert (dpu.has_image, dpu.installs) == (True, 2)

    async def test_another_card_is_not_touched(self) -> None:
        dpu = await self.dpu()
        dpu.exchange()
        dpu.enter(OS_INSTALLING)
        with pytest.raises(NeedsOperator, match=r"^serial: the device has "):
            await dpu.run()
        assert dpu.installs == 0

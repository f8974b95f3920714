"""The installers of DPUs, by the scheme of the address of their BMC."""

from __future__ import annotations

from collections.abc import Mapping

from drivers.provisioning.attempts import Attempt, Executor


class Installers:
    """Executes each step on a device with the installer of its address; the default one knows all other addresses."""

    def __init__(self, default: Executor, by_scheme: Mapping[str, Executor]) -> None:
        self._default = default
        self._by_scheme = by_scheme

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        scheme = attempt.dpu.bmc_address.partition(":")[0]
        return await self._by_scheme.get(scheme, self._default).run(attempt)

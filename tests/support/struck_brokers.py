"""Brokers that a test kills, suspends and restarts."""

from __future__ import annotations

import asyncio
import signal

from deploy.kafka.brokers import PAUSE_S, STOP_S, Brokers


class StruckBrokers(Brokers):
    """Brokers whose nodes are struck one by one."""

    def kill(self, node: int) -> None:
        """Send SIGKILL to a node."""
        self._nodes[node].kill()

    def pause(self, node: int) -> None:
        """Suspend a node: its connections stay open without responses."""
        self._nodes[node].send(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._nodes[node].send(signal.SIGCONT)

    async def restart(self, node: int) -> None:
        """Stop a node, by a controlled shutdown if it runs, and start it again. Returns when the cluster is
        complete.
        """
        process = self._nodes[node]
        process.send(signal.SIGTERM)
        for _ in range(int(STOP_S / PAUSE_S)):
            if not process.is_running:
                break
            await asyncio.sleep(PAUSE_S)
        process.kill()
        process.start()
        await self.ready()

    async def heal(self) -> None:
        """Resume suspended nodes, restart ended ones, and return when the cluster is complete."""
        for process in self._nodes.values():
            process.send(signal.SIGCONT)
            if not process.is_running:
                process.start()
        await self.ready()

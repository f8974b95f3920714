"""One member of a clique: its claim, its session, the files and the readiness of its daemon.

The daemon starts as soon as its node has an index, and does not wait for peers. The agent signals changes of
peers' addresses to the daemon, at most once per 5 s. The daemon reads its own index only at its start, so the agent
restarts the daemon when the index changes, and stops it while another node has the index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

from commands.client.client import PlaneClient
from commands.client.errors import CallFailed, Rejected
from deploy.clique_agent.daemon_process import DaemonProcess
from deploy.clique_agent.files import DaemonFiles
from eventstore.errors import PermanentError
from projections.cliques.files import Reload, reload
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_timestamp

logger = logging.getLogger(__name__)

HEARTBEAT_S = 4.0
FORMING_S = 30.0
"""Heartbeats are more frequent for this time after a change: the other members of a clique usually follow soon."""
FORMING_HEARTBEAT_S = 0.5
RETRY_S = 2.0
CHECK_S = 10.0
STARTING_CHECK_S = 1.0
"""Interval of the checks of the daemon until it is ready."""
CHECK_TIMEOUT_S = 10.0
RELEASE_S = 5.0
READY = b"READY"


class MemberIdentity(NamedTuple):
    """The member that an agent represents: its clique, its node, and its pod, which is the incarnation."""

    domain: str
    clique: str
    node: str
    address: str
    uid: str
    created_ms: int


class CliqueAgent:
    """Runs the daemon of one member until `run` is cancelled. With `releases`, the agent then releases the index."""

    def __init__(
        self,
        client: PlaneClient,
        member: MemberIdentity,
        files: DaemonFiles,
        daemon: DaemonProcess,
        *,
        check: Sequence[str],
        releases: bool,
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self.index: int | None = None
        self._client = client
        self._member = member
        self._files = files
        self._daemon = daemon
        self._check = check
        self._releases = releases
        self._now_ms = now_ms
        self._rng = rng
        self._revision: str | None = None
        self._reload = Reload()
        self._addresses: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._forming_until_s = 0.0

    async def run(self) -> None:
        """Claim an index, and run the daemon until cancelled. Raises Rejected or ClaimRefused if the plane refuses."""
        await self._claim()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._daemon.run())
                tasks.create_task(self._keep_session())
                tasks.create_task(self._signal_changes())
                tasks.create_task(self._report_readiness())
        finally:
            if self._releases:
                await asyncio.shield(self._release())

    async def _claim(self) -> None:
        """Repeat the claim until its outcome is known. A member of a full clique waits in the queue."""
        member = self._member
        claim = pb.ClaimSpec(
            node=member.node, address=member.address, uid=member.uid, create_time=to_timestamp(member.created_ms)
        )
        while True:
            request = pb.ClaimIndicesRequest(domain=member.domain, clique=member.clique, claims=[claim])
            try:
                result = await self._client.command("ClaimIndices", request)
            except Rejected as error:
                raise ClaimRefused(str(error)) from error
            except CallFailed as error:
                logger.warning("claim not answered, retrying: %s", error)
            else:
                if result.outcome in (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED, pb.OUTCOME_WAITING):
                    if result.outcome == pb.OUTCOME_WAITING:
                        logger.warning("claim queued, waiting for an index: %s", result.reason)
                    return
                if result.outcome == pb.OUTCOME_REFUSED:
                    raise ClaimRefused(result.reason)
            await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))

    async def _keep_session(self) -> None:
        member = self._member
        request = pb.KeepSessionRequest(domain=member.domain, clique=member.clique, node=member.node, uid=member.uid)
        while True:
            try:
                async for answer in self._client.keep_session(request, self._heartbeat_s):
                    if answer.revision != self._revision and await self._refresh(answer.position):
                        self._revision = answer.revision
            except CallFailed as error:  # also a refusal: a new pod of the node may have taken over the session
                logger.warning("session lost, opening it again: %s", error)
            await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))

    def _heartbeat_s(self) -> float:
        is_forming = asyncio.get_running_loop().time() < self._forming_until_s
        return (FORMING_HEARTBEAT_S if is_forming else HEARTBEAT_S) * self._rng.uniform(0.8, 1.2)

    async def _refresh(self, position: str) -> bool:
        """Read the clique, and update the files and the daemon. Returns whether the clique was read."""
        member = self._member
        where = {"domain": member.domain, "clique": member.clique, "min_position": position}
        try:
            config = await self._client.query("GetCliqueConfig", pb.GetCliqueConfigRequest(**where))
            clique = await self._client.query("GetClique", pb.GetCliqueRequest(**where))
        except CallFailed as error:
            logger.warning("clique not read, retrying: %s", error)
            return False
        own = next((found for found in clique.members if found.node == member.node), None)
        if own is None:  # in the queue; another revision follows when a slot is free
            await self._stop_if_replaced(clique.members)
            return True
        self._files.write(config.peers, config.hosts)
        self._addresses = tuple(line.partition("\t")[0] for line in config.hosts.splitlines())
        self._forming_until_s = asyncio.get_running_loop().time() + FORMING_S
        if self.index is None:
            logger.info("index assigned", extra={"index": own.index, "node": member.node})
            self.index, self._reload = own.index, Reload(self._addresses, self._now_ms())
            self._daemon.start()
        elif own.index != self.index:
            logger.warning("index changed, restarting the daemon", extra={"from": self.index, "index": own.index})
            self.index, self._reload = own.index, Reload(self._addresses, self._now_ms())
            await self._daemon.restart()
        self._changed.set()
        return True

    async def _stop_if_replaced(self, members: Iterable[pb.CliqueMember]) -> None:
        """Stop the daemon if its index was released and another node has it now."""
        holder = next((found.node for found in members if found.index == self.index), None)
        if self.index is not None and holder is not None:
            logger.warning(
                "index taken over by another node, stopping the daemon until this node has an index again",
                extra={"index": self.index, "holder": holder},
            )
            self.index = None
            await self._daemon.stop()

    async def _signal_changes(self) -> None:
        """Signal the daemon after changes of peers, coalesced to the rate that the daemon accepts."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while True:
                self._reload, is_due = reload(self._reload, self._addresses, self._now_ms())
                if is_due:
                    self._daemon.reload()
                if self._reload.wake_ms is None:
                    break
                await asyncio.sleep(max(0.0, (self._reload.wake_ms - self._now_ms()) / 1_000))

    async def _report_readiness(self) -> None:
        reported: bool | None = None
        while True:
            is_ready = await self._is_ready()
            if self.index is not None and is_ready != reported and await self._report(is_ready):
                reported = is_ready
            await asyncio.sleep((CHECK_S if is_ready else STARTING_CHECK_S) * self._rng.uniform(0.8, 1.2))

    async def _report(self, is_ready: bool) -> bool:
        member = self._member
        request = pb.ReportDaemonReadinessRequest(
            domain=member.domain, clique=member.clique, node=member.node, uid=member.uid, ready=is_ready
        )
        try:
            result = await self._client.command("ReportDaemonReadiness", request)
        except CallFailed as error:
            logger.warning("readiness not reported, retrying: %s", error)
            return False
        return result.outcome in (pb.OUTCOME_DONE, pb.OUTCOME_UNCHANGED)

    async def _is_ready(self) -> bool:
        """Whether the daemon runs and its check prints READY."""
        if not self._daemon.is_running:
            return False
        if not self._check:
            return True
        try:
            process = await asyncio.create_subprocess_exec(
                *self._check, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            logger.warning("daemon check cannot be started: %s", error.strerror)
            return False
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            return False
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        return process.returncode == 0 and output.strip() == READY

    async def _release(self) -> None:
        member = self._member
        request = pb.ReleaseIndicesRequest(
            domain=member.domain, clique=member.clique, releases=[pb.ReleaseSpec(node=member.node, uid=member.uid)]
        )
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._client.command("ReleaseIndices", request)
        except (CallFailed, TimeoutError) as error:
            logger.warning("index not released, the plane releases it when the pod is deleted: %s", error)


class ClaimRefused(PermanentError):
    """The plane refused the claim; the message is the reason that the plane gave."""

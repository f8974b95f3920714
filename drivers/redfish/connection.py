"""A BMC as an attempt reaches it: its certificate was judged, a session of the attempt is open, its parts are known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec

from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.provisioning.attempts import Attempt, check_serial
from drivers.provisioning.device import token_of
from drivers.redfish.answers import decoded
from drivers.redfish.certificates import (
    BmcAuthority,
    PresentedCertificates,
    Verdict,
    judge,
    peer_certificate,
    pinned,
    replacement,
    signing_request,
    utc,
)
from drivers.redfish.client import CertificateReplaced, ConnectRedfish, RedfishClient
from drivers.redfish.resources import ROOT, SERVICE_ROOT, Chassis, Link, Request, Root, Software, System, best_member
from drivers.redfish.sessions import Credentials, log_in, log_out
from eventstore.errors import PlaneError

LOG_OUT_S = 5.0
RENEWAL_S = 60.0
"""Longest time for which a BMC may take to present a new certificate: its web server restarts."""
RENEWAL_POLL_S = 1.0
_BLUEFIELD_3: Mapping[str, str] = {
    "DPU_OS": "os_version",
    "DPU_BSP": "bsp_version",
    "DPU_UEFI": "uefi_version",
    "DPU_NIC": "nic_version",
    "BMC_Firmware": "bmc_version",
}
_BLUEFIELD_4: Mapping[str, str] = {
    "DPU_OS": "os_version",
    "BlueField_FW_CPU_0": "uefi_version",
    "BlueField_FW_NIC_0": "nic_version",
    "BlueField_FW_BMC_0": "bmc_version",
}
VERSIONS: Mapping[str, str] = {**_BLUEFIELD_3, **_BLUEFIELD_4}
"""Entries of the firmware inventory, with the facts of a DPU that they become."""


class _SigningRequest(msgspec.Struct, frozen=True):
    text: str = msgspec.field(default="", name="CSRString")


CredentialsOf: TypeAlias = Callable[[str], Awaitable[Credentials]]
"""The credentials for the BMC of a DPU. It may raise the errors of a device."""


class Context(NamedTuple):
    """The shared context of all attempts. Without an authority, the certificate of the first contact is pinned.
    `pushes` limits concurrent pushes of firmware."""

    connect: ConnectRedfish
    credentials: CredentialsOf
    authority: BmcAuthority | None
    now_ms: Callable[[], int]
    pushes: asyncio.Semaphore
    presented: PresentedCertificates


class Connection(NamedTuple):
    """A BMC with an open session. `serial` is the serial number of its card, and `verdict` that on its certificate."""

    attempt: Attempt
    client: RedfishClient
    root: Root
    system: str
    manager: str
    serial: str
    verdict: Verdict

    @property
    def firmware_entry(self) -> str:
        """The entry of the firmware inventory with the BMC's own firmware."""
        return "BlueField_FW_BMC_0" if self.root.is_bluefield_4 else "BMC_Firmware"

    async def read_system(self) -> System:
        return await self.attempt.call(partial(self.client.read, self.system, System), alters=False)

    async def read_versions(self) -> dict[str, str]:
        """The versions in the firmware inventory, by entry."""
        found = {}
        for name in _BLUEFIELD_4 if self.root.is_bluefield_4 else _BLUEFIELD_3:
            path = f"{ROOT}/UpdateService/FirmwareInventory/{name}"
            software = await self.attempt.call(partial(self.client.find, path, Software), alters=False)
            if software is not None and software.version:
                found[name] = software.version
        return found

    async def restart(self) -> None:
        """Restart the Arm cores of the DPU."""
        request = Request("POST", f"{self.system}/Actions/ComputerSystem.Reset", {"ResetType": "ForceRestart"})
        await self.attempt.call(partial(self.client.send, request))

    async def reset_card(self, kind: str) -> None:
        """Reset the card, or its Arm cores only, as NVIDIA's extension of a chassis does it."""
        path = await self.attempt.call(partial(card_chassis, self.client, self.root), alters=False)
        if not path:
            raise NeedsOperator("chassis: the BMC reports no chassis of the card, so the card cannot be reset")
        request = Request("POST", f"{path}/Actions/Oem/NvidiaChassis.Reset", {"ResetType": kind})
        await self.attempt.call(partial(self.client.send, request))


async def card_chassis(client: RedfishClient, root: Root) -> str:
    """The path of a card among the chassis; empty if there is none."""
    return best_member(await client.members(root.chassis), "card1", "bluefield_0", "bluefield")


async def card_serial(client: RedfishClient, root: Root, system: str) -> str:
    """The serial number of a card: that of its chassis, else that of its system."""
    path = await card_chassis(client, root)
    chassis = await client.find(path, Chassis) if path else None
    if chassis is not None and chassis.serial_number:
        return chassis.serial_number.strip()
    return ((await client.read(system, System)).serial_number or "").strip()


@asynccontextmanager
async def connected(attempt: Attempt, context: Context) -> AsyncIterator[Connection]:
    """The BMC of a DPU. Its session ends with the context, or with the session of the next attempt."""
    client = context.connect(attempt.dpu.bmc_address)
    verdict, root = await _contacted(attempt, client, context)
    credentials = await context.credentials(attempt.name)
    own = await log_in(client, root, credentials, token_of(attempt.dpu), attempt.call)
    try:
        system = best_member(await attempt.call(partial(client.members, root.systems), alters=False), "bluefield")
        manager = best_member(
            await attempt.call(partial(client.members, root.managers), alters=False), "bluefield_bmc", "bmc"
        )
        if not system:
            raise NeedsOperator(f"bmc_address: {client.host} is not the BMC of a DPU: it has no system")
        serial = await attempt.call(partial(card_serial, client, root, system), alters=False)
        check_serial(attempt.dpu.serial, serial)
        connection = Connection(attempt, client, root, system, manager, serial, verdict)
        if verdict.is_due and context.authority is not None:
            connection = connection._replace(verdict=await _renew(connection, context, context.authority))
        yield connection
    except asyncio.CancelledError:
        own = ""  # a process that stops must not wait for BMCs; the next attempt ends the session
        raise
    finally:
        if own:
            with suppress(PlaneError, TimeoutError):
                async with asyncio.timeout(LOG_OUT_S):
                    await log_out(client, own)


async def _contacted(attempt: Attempt, client: RedfishClient, context: Context) -> tuple[Verdict, Root]:
    """Judge the certificate of the BMC, and read its root, which needs no session. The client accepts no other
    certificate from then on."""
    read = partial(client.read, SERVICE_ROOT, Root)
    known = context.presented.of(client.host)
    if known is not None and not (verdict := _verdict(attempt, client, context, known)).refusal:
        client.trust = pinned(known)
        with suppress(CertificateReplaced):
            return verdict, await attempt.call(read, alters=False)
    verdict = await _trusted(attempt, client, context)
    return verdict, await attempt.call(read, alters=False)


async def _trusted(attempt: Attempt, client: RedfishClient, context: Context) -> Verdict:
    """Judge the certificate that the BMC presents now."""
    if not client.base.startswith("https:"):
        return Verdict()
    found = await attempt.call(partial(peer_certificate, client.host), alters=False)
    verdict = _verdict(attempt, client, context, found)
    if verdict.refusal:
        raise NeedsOperator(verdict.refusal)
    client.trust = pinned(found)
    context.presented.keep(client.host, found)
    return verdict


def _verdict(attempt: Attempt, client: RedfishClient, context: Context, certificate: bytes) -> Verdict:
    return judge(client.host, certificate, attempt.dpu.facts, context.authority, utc(context.now_ms()))


async def _renew(connection: Connection, context: Context, authority: BmcAuthority) -> Verdict:
    """Give the BMC a certificate of the authority, for a key that the BMC makes itself."""
    attempt, client = connection.attempt, connection.client
    collection = f"{connection.manager}/NetworkProtocol/HTTPS/Certificates"
    path = best_member(await attempt.call(partial(client.members, Link(collection)), alters=False))
    if not path:
        raise NeedsOperator(f"certificate: {client.host} has none that can be replaced")
    answer = await attempt.call(partial(client.send, signing_request(client.host, collection)))
    text = decoded(client.host, answer.content, _SigningRequest).text
    signed = authority.sign(text.encode(), client.host, utc(context.now_ms()))
    await attempt.call(partial(client.send, replacement(path, signed)))
    deadline_s = asyncio.get_running_loop().time() + RENEWAL_S
    while True:
        try:
            found = await attempt.call(partial(peer_certificate, client.host), alters=False)
            verdict = judge(client.host, found, {}, authority, utc(context.now_ms()))
            if not verdict.is_due and not verdict.refusal:
                client.trust = pinned(found)
                context.presented.keep(client.host, found)
                return verdict
        except Unreachable:
            pass
        if asyncio.get_running_loop().time() > deadline_s:
            raise Unreachable(f"certificate: {client.host} does not present the new one after {RENEWAL_S:g} s")
        await asyncio.sleep(RENEWAL_POLL_S)

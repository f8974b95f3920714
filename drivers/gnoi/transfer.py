"""The transfer of a package by os.Install: one chunk is under way, and the device's answers are heeded meanwhile.

A device that has a package of this name already says so at once, so that a transfer whose answer was lost, and one that
broke after the device had validated it, are not repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import grpc

from drivers.backends.bmc import TaskFailed
from drivers.gnoi.answers import ended, error_of, install_error
from drivers.gnoi.client import GnoiClient
from drivers.provisioning.attempts import Attempt
from projections.field_checks import quoted
from schemas.openconfig import os_pb2

CHUNK_BYTES = 1 << 20
"""Size of a chunk: a quarter of what a server of gRPC accepts as one message by default."""

Report: TypeAlias = Callable[[int], Awaitable[None]]
"""Reports the number of bytes that the device has received."""


class Package(NamedTuple):
    """A package by the name under which the device keeps it. `chunks` begins to read its content."""

    name: str
    size: int
    chunks: Callable[[], AsyncIterator[bytes]]


async def transfer(attempt: Attempt, client: GnoiClient, package: Package, report: Report, validation_s: float) -> bool:
    """Give a package to the device. Returns whether it had to be sent. `validation_s` is the longest time that a device
    may take to validate it. Raises the errors of a device."""
    stream = client.install()
    try:
        return await _Transfer(attempt, client.host, stream, package, report).run(validation_s)
    except grpc.aio.AioRpcError as error:
        raise error_of(client.host, f"receive {quoted(package.name)}", error) from error
    except asyncio.InvalidStateError:  # the device has ended the stream while a chunk was written
        code, details = await stream.code(), await stream.details()
        raise error_of(client.host, f"receive {quoted(package.name)}", ended(code, details)) from None
    finally:
        stream.cancel()


class _Transfer:
    def __init__(self, attempt: Attempt, host: str, stream: Any, package: Package, report: Report) -> None:
        self._attempt = attempt
        self._host = host
        self._stream = stream
        self._package = package
        self._report = report

    async def run(self, validation_s: float) -> bool:
        name, size = self._package.name, self._package.size
        request = os_pb2.TransferRequest(version=name, package_size=size)
        await self._write(os_pb2.InstallRequest(transfer_request=request), alters=True)
        first = await self._attempt.call(self._stream.read, alters=False)
        if self._is_validated(first):
            return False
        if self._kind(first) != "transfer_ready":
            raise TaskFailed(f"device: {self._host} answered a request for a transfer with {self._kind(first)}")
        reading = asyncio.ensure_future(self._stream.read())
        try:
            async for chunk in self._package.chunks():
                await self._sent(chunk, reading)
                reading = await self._heeded(reading)
            await self._write(os_pb2.InstallRequest(transfer_end=os_pb2.TransferEnd()))
            patient = self._attempt._replace(timing=self._attempt.timing._replace(call_s=validation_s))
            while True:
                answer = await patient.call(partial(_self, reading), alters=False)
                if self._is_validated(answer):
                    return True
                await self._progress(answer)
                reading = asyncio.ensure_future(self._stream.read())
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await reading

    async def _sent(self, chunk: bytes, reading: asyncio.Future[Any]) -> None:
        """Write a chunk. A device that ends the stream says why in its last answer."""
        try:
            await self._write(os_pb2.InstallRequest(transfer_content=chunk))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            with suppress(grpc.aio.AioRpcError):
                self._is_validated(await self._attempt.call(partial(_self, reading), alters=False))
            raise

    async def _heeded(self, reading: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The next answer to come, after all that have come."""
        while reading.done():
            answer = reading.result()
            if self._is_validated(answer):
                raise TaskFailed(f"image: the device validated {quoted(self._package.name)} before it had all of it")
            await self._progress(answer)
            reading = asyncio.ensure_future(self._stream.read())
            await asyncio.sleep(0)
        return reading

    async def _write(self, request: os_pb2.InstallRequest, *, alters: bool = False) -> None:
        await self._attempt.call(partial(self._stream.write, request), alters=alters)

    async def _progress(self, answer: Any) -> None:
        if self._kind(answer) == "transfer_progress":
            await self._report(answer.transfer_progress.bytes_received)

    def _is_validated(self, answer: Any) -> bool:
        """Whether an answer says that the device has the package. Raises the error that it has instead."""
        if self._kind(answer) == "install_error":
            raise install_error(self._package.name, answer.install_error)
        if self._kind(answer) != "validated":
            return False
        if answer.validated.version not in ("", self._package.name):
            has, wanted = quoted(answer.validated.version), quoted(self._package.name)
            raise TaskFailed(f"image: the device found {has} in the package of {wanted}")
        return True

    def _kind(self, answer: Any) -> str:
        if answer is grpc.aio.EOF:  # type: ignore[attr-defined]
            raise ended(grpc.StatusCode.UNAVAILABLE, "it ended the transfer without a result")
        return answer.WhichOneof("response") or "nothing"


def _self(future: asyncio.Future[Any]) -> asyncio.Future[Any]:
    return future

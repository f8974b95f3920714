"""Commands that the agent runs on its host, with a time limit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from deploy.host_agent.actions import ActionFailed

TIMEOUT_S = 120.0
OUTPUT_MAX = 200
"""Maximum number of characters of a command's output in a message."""


async def run_command(command: Sequence[str], variables: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> None:
    """Run a command to its end, with these variables added to its environment. Raises ActionFailed."""
    name = command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | variables,
            start_new_session=True,
        )
    except OSError as error:
        raise ActionFailed(f"command: {name} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        raise ActionFailed(f"command: {name} did not end within {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        said = " ".join(output.decode(errors="replace").split())[-OUTPUT_MAX:]
        raise ActionFailed(f"command: {name} ended with status {process.returncode}: {said}")

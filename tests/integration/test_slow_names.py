"""Host names whose lookup hangs, in a separate network namespace with a name server that never responds."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.faults import sandbox
from tests.support.requirements import missing_requirement

LOOKED_UP = """
import asyncio, socket
from deploy.process.life import run_until_signal

async def look_up(name, said):
    try:
        await asyncio.get_running_loop().getaddrinfo(name, 80)
    except OSError:
        pass
    said.append(name)

async def main():
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 53))
    said, names = [], [f"broker-{number}.example" for number in range(12)]
    lost = [asyncio.ensure_future(look_up(name, said)) for name in names]
    await asyncio.sleep(0.1)
    await look_up("localhost", said)
    await asyncio.gather(*lost)
    print(*said)

run_until_signal(main())
"""


async def test_brokers_are_found_while_the_lookup_of_other_names_hangs(tmp_path: Path) -> None:
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    if why := sandbox.unsupported_reason():
        missing_requirement(why)
    setting = f'ip link set lo up && mount --bind {resolv} "$(realpath /etc/resolv.conf)" && exec "$@"'
    command = [*sandbox.namespace_prefix(), "sh", "-c", setting, "sh", sys.executable, "-c", LOOKED_UP]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await asyncio.wait_for(child.communicate(), 60)
    found = said.decode().split()
    assert len(found) == 13, "a lookup did not end"
    assert found[0] == "localhost"

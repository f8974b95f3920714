"""The memory of an agent, which runs on a device beside its data plane."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

from deploy.host.heap import return_large_buffers
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, pack, steps_between, unpack
from projections.rules.rule import Rule
from tests.support.requirements import missing_requirement

PREFIXES = 50_000
PACKED = b"".join((0x0B00_0000 + 2 * number).to_bytes(4, "big") + b"\x20" for number in range(PREFIXES))
RULE = Rule(10, "allow", "any", ())

HOLES = """
from pathlib import Path
from deploy.host.heap import return_large_buffers
assert {wanted} is False or return_large_buffers()
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1])
kept = []
for _ in range(3):
    large = []
    for _ in range(100):
        large.append(bytearray(b"x") * 300_000)
        kept.append(bytearray(b"x") * 2_000)  # lies behind the large one, so that the end of the heap stays in use
    full = resident()
    large.clear()
print(full - resident())
"""


def test_an_agent_imports_no_http_server_and_no_library_of_the_log() -> None:
    code = (
        "import sys; import deploy.cli.processes.agent, deploy.tls.dialing, deploy.process.life, drivers.agents.agent;"
        "found = {'aiohttp.web', 'aiokafka', 'fastavro', 'grpc', 'kubernetes_asyncio', 'pydantic', 'rocksdict'}"
        " & set(sys.modules); assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_set_is_packed_in_a_small_multiple_of_its_packed_size() -> None:
    prefixes = unpack(PACKED, b"")
    tracemalloc.start()
    try:
        found = pack(prefixes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == (PACKED, b"")
    assert peak < 60 * PREFIXES  # one join of all of them takes 80 bytes for each


def test_a_set_of_both_families_is_packed_in_order() -> None:
    packed6 = b"".join(number.to_bytes(16, "big") + b"\x80" for number in range(10_000))
    assert pack(unpack(PACKED, packed6)) == (PACKED, packed6)


def test_a_whole_table_is_its_own_difference_from_the_empty_one() -> None:
    (step,) = steps_between(EMPTY_TABLE, DeviceTable(1, 1, bytes(16), {RULE: unpack(PACKED, b"")}))
    assert (step.rule, step.add4, step.add6, step.remove4, step.remove6) == (RULE, PACKED, b"", b"", b"")


def test_large_buffers_are_returned_to_the_system() -> None:
    if not return_large_buffers():
        missing_requirement("the C library has no mallopt")
    without, with_it = (_pages_returned(is_wanted=wanted) for wanted in (False, True))
    assert with_it > 5_000
    assert without < with_it // 2


def _pages_returned(*, is_wanted: bool) -> int:
    """The pages that a process returns when it frees 30 MB in buffers, as the last of three times."""
    code = HOLES.format(wanted=is_wanted)
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

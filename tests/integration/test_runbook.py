"""The commands of the runbook work as written on a plane with certificates, set up as its first page says."""

from __future__ import annotations

from pathlib import Path

from tests.support.documents import ROOT, RUN, blocks
from tests.support.terminal import Terminal, terminal

RUNBOOK = (ROOT / "deploy" / "RUNBOOK.md").read_text()
PREFACE, *SECTIONS = RUNBOOK.split("\n## ")
_, WITH_TLS = (block for block in blocks(PREFACE) if block.mark == RUN)
PLANE = (
    "dpuplane certs init",
    "dpuplane certs issue plane local",
    "dpuplane certs issue operator ann",
    "dpuplane serve --data secure --tls-cert certs/plane@local.pem --tls-key certs/plane@local.key "
    "--tls-client-ca certs/ca.pem",
)
ELSEWHERE = "--kafka"
"""Part of commands that need brokers. This test has none, and they need other certificates."""


async def typed(here: Terminal, line: str) -> None:
    ran = await here.type(line)
    assert ran.status == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"


async def test_every_command_of_the_runbook_works_under_tls_with_the_environment(tmp_path: Path) -> None:
    asked = [line for section in SECTIONS for block in blocks(section) for line in block.lines if block.mark == RUN]
    assert len(asked) > 30
    async with terminal(tmp_path) as here:
        for line in PLANE:
            await typed(here, line)
        bare = await here.type("dpuplane status")
        assert (bare.status, "--tls-cert" in bare.stderr) == (3, True)
        for line in WITH_TLS.lines:
            await typed(here, line)
        await typed(here, "dpuplane nodes join rack7-n1 --zone rack7 --address 10.7.0.1")
        for line in dict.fromkeys(asked):
            if ELSEWHERE in line:
                continue
            ran = await here.type(line)
            is_gone = line.startswith("dpuplane commands show") and "did not reach the log in time" in ran.stderr
            is_empty = "| grep" in line and not ran.stderr  # this plane has no DPU and so no age of a table
            assert ran.status == 0 or is_gone or is_empty, f"{line}\n{ran.stdout}\n{ran.stderr}"

"""The examples in every --help run as typed, on a plane with the objects that they name.

The plane is `dpuplane serve --data plane --simulate 2` with three nodes in zone rack7. Lines in `BEFORE` prepare the
objects that an example needs in addition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from deploy.reference.commands import example_of, walk
from tests.support.terminal import Terminal, terminal

V1 = "apiVersion: provisioning.dpu.nvidia.com/v1alpha1"
MANIFESTS = (
    "mkdir -p manifests",
    f"printf '{V1}\\nkind: BFB\\nmetadata: {{name: bf-bundle}}\\nspec: {{url: \"http://images/a.bfb\"}}\\n'"
    " > manifests/image.yaml",
    f"printf '{V1}\\nkind: DPUSet\\nmetadata: {{name: rack7, namespace: dpf}}\\n"
    "spec: {dpuTemplate: {spec: {bfb: {name: bf-bundle}, dpuFlavor: hbn}}}\\n' > manifests/set.yaml",
)
PLANE = (
    "dpuplane serve --data plane --simulate 2",
    "export DPUPLANE_SERVER=127.0.0.1:7080",
    'export HOME="$PWD"',
    *(f"dpuplane nodes join rack7-n{n} --zone rack7 --address 10.7.0.{n}" for n in (1, 3, 4)),
    "dpuplane wait zone rack7 --for applied",
    *MANIFESTS,
    "dpuplane apply -f manifests/image.yaml -n dpf",
    "dpuplane apply -f manifests",
    "dpuplane dpus provision rack7-dpu-0001 --image bf-bundle-2.10",
)
"""The second DPU becomes ready while earlier examples run, before the examples that select ready DPUs."""
DPU = "rack7-dpu-0000"
POLICY = "printf 'name: web\\nsources: {model: A10}\\nzones: {tier: gpu}\\naction: allow\\n' > policy.yaml"
STAGED = (
    POLICY,
    "dpuplane policies undo web",
    "dpuplane policies delete web",
    "dpuplane policies apply policy.yaml --stages 1,1%,10%,100% --bake-time 10m",
)
FULL = ("dpuplane cliques capacity domain-1 clique-a 1", "dpuplane cliques claim domain-1 clique-a node-3")
BEFORE = {
    "dpuplane annotate bfb": ("dpuplane apply -f manifests/image.yaml -n dpf",),
    "dpuplane import ": ("printf 'name\\nrack9-n1\\nrack9-n2\\n' > nodes.csv",),
    "dpuplane nodes list": ("dpuplane nodes join rack7-n3 --zone rack7 --address 10.7.0.3",),
    "dpuplane cliques config": FULL[1:],
    "dpuplane cliques ready": FULL[1:],
    "dpuplane wait clique": FULL,
    "dpuplane checkpoint keygen": ("rm -f plane.key plane.key.pub",),
    "dpuplane checkpoint --key": ("dpuplane checkpoint keygen --key plane.key",),
    "dpuplane dpus abort": (f"dpuplane dpus provision {DPU} --image bf-bundle-2.10",),
    "dpuplane dpus provision --selector": (
        "dpuplane zones label rack7 rack=7",
        "dpuplane wait dpu rack7-dpu-0001 --for ready",
    ),
    "dpuplane dpus resume": (f"dpuplane dpus pause {DPU}",),
    "dpuplane nodes leave -l": ("dpuplane nodes join rack7-n9 --zone rack7 --address 10.7.0.9 --label model=A10",),
    "dpuplane wait dpu": (
        f"dpuplane dpus resume {DPU}",
        f"dpuplane dpus provision {DPU} --image bf-bundle-2.10",
        f"dpuplane dpus retry {DPU}",
    ),
    "dpuplane policies apply": (POLICY,),
    "dpuplane policies delete": (POLICY, "dpuplane policies undo web", "dpuplane policies apply policy.yaml"),
    "dpuplane policies status": STAGED,
    "dpuplane policies pause": STAGED,
    "dpuplane policies resume": (*STAGED, "dpuplane policies pause web"),
    "dpuplane policies undo": STAGED,
    "dpuplane thaw": ("dpuplane freeze rack7",),
    "dpuplane config ": ("dpuplane config set-context lab --server 127.0.0.1:7080",),
    "dpuplane certs revoke": ("dpuplane certs issue operator ann",),
    "dpuplane certs show": ("dpuplane certs issue operator ann",),
    "dpuplane certs init": ("rm -rf certs",),
    "dpuplane completion": ("mkdir -p .local/share/bash-completion/completions .zfunc .config/fish/completions",),
}
AFTER = {"dpuplane dpus abort": (f"dpuplane dpus provision {DPU} --image bf-bundle-2.10", f"dpuplane dpus retry {DPU}")}
"""Lines after the last example that stops the DPU. The DPU becomes ready while the examples before `wait dpu` run."""
OF_THE_READER = {
    "dpuplane holds approve 31": "hold: 31 is not",
    "dpuplane holds reject 31": "hold: 31 is not",
    "dpuplane holds show 31": "hold: 31 is not",
    "dpuplane dpus config": "no object wants a DPU",
    "dpuplane dpus network": "is not a DPU of any zone",
    "dpuplane rollout ": "has no rollout: it does not exist",
    "dpuplane networks status": "no change of the networks of 'local' was staged",
    "dpuplane networks ": "have no staged change",
    "dpuplane commands show": "did not reach the log in time",
    "dpuplane zones delete": "and must have none",
}
"""Examples that are refused here, with a part of the error: their ids exist only on the plane of a reader, or their
zone is in use."""
NO_FAULT = ("dpuplane dpus retry", "dpuplane dpus skip", "dpuplane dpus abort", "dpuplane dpus resume")
"""Examples that may be refused, because they need a fault or a running step that this plane may not have."""
ENDLESS = ("dpuplane events tail",)
BESIDE = ("dpuplane demo", *ENDLESS)
"""Examples that wait for seconds and do not change the plane. They run at the same time as the others."""
LAST = ("dpuplane dpus register", "dpuplane dpus delete", "dpuplane serve")
"""Examples that run last: one registers a DPU without an agent, one deletes a DPU, and one replaces the plane."""
OUTSIDE = ("kafka", "clique-agent", "host-agent")
"""Examples that need brokers, a pod, or a host with DPUs. Other tests run these commands (test_brokers.py,
test_serve_kafka.py, test_clique_agent.py, test_host_agent.py)."""


def examples() -> list[str]:
    """Every example once. Examples that would break others come last."""
    found = [
        line for walked in walk() for line in example_of(walked.command) if not any(word in line for word in OUTSIDE)
    ]
    return sorted(
        dict.fromkeys(found), key=lambda line: next((n for n, b in enumerate(LAST, 1) if line.startswith(b)), 0)
    )


@pytest.mark.timeout(900)
async def test_every_example_works_as_typed(tmp_path: Path) -> None:
    typed = examples()
    assert len(typed) > 60
    first = [line for line in typed if not line.startswith(LAST)]
    async with terminal(tmp_path) as here:
        for line in PLANE:
            ran = await here.type(line)
            assert ran.status == 0, f"{line}\n{ran.stderr}"
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(fault_of(here, line)) for line in first if line.startswith(BESIDE)]
            faults = [await fault_of(here, line) for line in first if not line.startswith(BESIDE)]
        faults += [task.result() for task in beside]
        faults += [await fault_of(here, line) for line in typed[len(first) :]]
    assert len(faults) == len(typed)
    assert not any(faults), "\n".join(filter(None, faults))


async def fault_of(here: Terminal, line: str) -> str:
    """Run the lines before an example, the example, and the lines after it. Returns its error, or an empty text."""
    for before in lines_for(BEFORE, line):
        await here.type(before)
    if line.startswith(ENDLESS):
        ran = await here.type(f"timeout --foreground --preserve-status -s INT 5 {line}")
        is_fine = ran.status == 130 and not ran.stderr
    else:
        ran = await here.type(line)
        refused = ran.status == 1 and "refused: " in ran.stderr
        theirs = next((said for start, said in OF_THE_READER.items() if line.startswith(start)), "")
        is_theirs = bool(theirs) and ran.status == 1 and theirs in ran.stderr
        is_fine = ran.status == 0 or is_theirs or (refused and line.startswith(NO_FAULT))
    for after in lines_for(AFTER, line):
        await here.type(after)
    return "" if is_fine else f"{line}: {ran.status}\n{ran.stdout[-300:]}{ran.stderr}"


def lines_for(prepared: Mapping[str, Sequence[str]], example: str) -> Sequence[str]:
    return next((lines for start, lines in prepared.items() if example.startswith(start)), ())

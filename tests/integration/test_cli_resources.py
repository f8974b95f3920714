"""`apply`, `get`, `describe`, `diff` and `delete` against a real process with an embedded log, without Kubernetes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from click.testing import CliRunner

from deploy.cli import cli
from projections.resources.items import MAX_SPEC_BYTES
from tests.support.planes import Ran, run, serving

V1 = "provisioning.dpu.nvidia.com/v1alpha1"
SET = f"""\
apiVersion: {V1}
kind: DPUSet
metadata: {{name: rack7, labels: {{tier: gpu}}}}
spec: {{dpuTemplate: {{spec: {{bfb: {{name: image}}, dpuFlavor: hbn}}}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: pull}}
"""
IMAGE = {"apiVersion": V1, "kind": "BFB", "metadata": {"name": "image"}, "spec": {"url": "http://127.0.0.1:1/a.bfb"}}
FLAVOR = f"apiVersion: {V1}\nkind: DPUFlavor\nmetadata: {{name: hbn}}\nspec: {{}}\n"
WRONG = f"""\
apiVersion: {V1}
kind: BFB
metadata: {{name: other}}
spec: {{url: $BFB_URL}}
---
apiVersion: {V1}
kind: DPUSet
metadata: {{name: rack8}}
spec: {{dpuTemplate: {{spec: {{bfb: {{nam: image}}, dpuFlavor: hbn}}}}}}
---
apiVersion: storage.dpu.nvidia.com/v1alpha1
kind: DPUStorage
metadata: {{name: s}}
---
apiVersion: {V1}
kind: DPUFlavor
metadata: {{name: large}}
spec: {{configFiles: [{{path: /a, operation: override, raw: {"x" * MAX_SPEC_BYTES}}}]}}
---
apiVersion: {V1}
kind: BFB
metadata: {{name: "\\u202Eb"}}
spec: {{url: "http://a/b.bfb"}}
"""
NAMES = ["bfb.provisioning.dpu.nvidia.com/image", "dpuflavor.provisioning.dpu.nvidia.com/hbn"]
SET_NAME = "dpuset.provisioning.dpu.nvidia.com/rack7"


class Plane:
    """Commands of this process against a plane in another one."""

    def __init__(self, server: str) -> None:
        self.server = server

    async def __call__(self, *arguments: str) -> Ran:
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--server", self.server])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    async def names(self) -> list[str]:
        """The objects of three kinds; a plane of these tests has no other ones."""
        found = await self("get", "bfb,dpuflavors,DPUSet", "-A", "-o", "name")
        assert found.stdout.splitlines() == sorted((await self("get", "all", "-A", "-o", "name")).stdout.splitlines())
        return found.stdout.splitlines()


@asynccontextmanager
async def plane(data: Path) -> AsyncIterator[Plane]:
    async with serving("--data", str(data)) as process:
        yield Plane(process.address("api"))
        await process.stop()


def folder(path: Path) -> str:
    """A folder of manifests: the set comes before what it refers to."""
    path.mkdir()
    (path / "a-set.yaml").write_text(SET)
    (path / "b-image.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [IMAGE]}))
    (path / "c-flavor.yml").write_text(FLAVOR)
    (path / "notes.txt").write_text("[")
    return str(path)


async def test_a_folder_of_manifests_is_applied_shown_compared_and_deleted(tmp_path: Path) -> None:
    manifests = folder(tmp_path / "manifests")
    async with plane(tmp_path / "plane") as dpuplane:
        ran = await dpuplane("diff", "-f", manifests, "-n", "dpf")
        assert ran.status == 1 and "+    tier: gpu" in ran.stdout
        assert not await dpuplane.names()
        ran = await dpuplane("apply", "-f", manifests, "-n", "dpf", "--dry-run")
        assert ran.status == 0 and f"{SET_NAME} created (dry run)\n" in ran.stdout
        assert not await dpuplane.names()
        ran = await dpuplane("apply", "-f", manifests, "-n", "dpf")
        assert ran.status == 0
        assert ran.stdout.splitlines() == [f"{name} created" for name in (SET_NAME, *NAMES)]
        assert ran.stderr == f"passed over: {manifests}/a-set.yaml: document 2: Secret pull\n"
        ran = await dpuplane("apply", "-f", manifests, "-n", "dpf")
        assert ran.stdout.splitlines() == [f"{name} unchanged" for name in (SET_NAME, *NAMES)]
        ran = await dpuplane("diff", "-f", manifests, "-n", "dpf")
        assert (ran.status, ran.stdout) == (0, "")
        async with asyncio.timeout(60):
            while "Error" not in (await dpuplane("get", "bfb", "image", "-n", "dpf")).stdout:
                await asyncio.sleep(0.1)  # the image store refuses the address
        before = await shown(dpuplane)
    async with plane(tmp_path / "plane") as dpuplane:
        assert await shown(dpuplane) == before, "the objects are the same after a restart"
        (tmp_path / "manifests" / "a-set.yaml").write_text(SET.replace("gpu", "web"))
        ran = await dpuplane("diff", "-f", manifests, "-n", "dpf")
        assert ran.status == 1 and "-    tier: gpu\n+    tier: web" in ran.stdout and "image" not in ran.stdout[:200]
        ran = await dpuplane("apply", "-f", manifests, "-n", "dpf")
        assert f"{SET_NAME} configured\n" in ran.stdout
        ran = await dpuplane("delete", "bfb", "image", "-n", "dpf")
        assert ran.status == 0
        assert ran.stdout.endswith("is being deleted: it stays until these no longer use it: DPUSet rack7\n")
        ran = await dpuplane("delete", "-f", manifests, "-n", "dpf")
        assert ran.status == 0 and f"{SET_NAME} deleted\n" in ran.stdout
        assert not await dpuplane.names()
        ran = await dpuplane("delete", "dpusets/rack7", "-n", "dpf")
        assert (ran.status, ran.stderr) == (1, f"{SET_NAME} does not exist\n")
        assert (await dpuplane("delete", "dpusets/rack7", "-n", "dpf", "--ignore-not-found")).status == 0


async def shown(dpuplane: Plane) -> list[str]:
    """The objects in every form of output, apart from their age."""
    ran = [
        await dpuplane("get", "dpuset", "rack7", "-n", "dpf", "-o", "yaml"),
        await dpuplane("get", "bfbs", "-A", "-o", "json"),
        await dpuplane("get", "dpusets", "-l", "tier=gpu", "-n", "dpf", "-o", "name"),
        await dpuplane("describe", "dpuset", "rack7", "-n", "dpf"),
        await dpuplane("describe", "bfb/image", "dpuflavor/hbn", "-n", "dpf"),
    ]
    assert not any(each.status for each in ran), ran
    found = yaml.safe_load(ran[0].stdout)
    assert found["metadata"]["name"] == "rack7" and found["spec"]["dpuTemplate"]["spec"]["dpuFlavor"] == "hbn"
    assert [each["kind"] for each in ran[1].json()["items"]] == ["BFB"]
    assert ran[2].stdout == f"{SET_NAME}\n"
    assert "  BFB image (spec.dpuTemplate.spec.bfb.name)\n" in ran[3].stdout and "does not exist" not in ran[3].stdout
    assert "Referred to by:\n  DPUSet rack7\n" in ran[4].stdout
    table = await dpuplane("get", "bfb", "-A")
    assert table.stdout.splitlines()[0].split() == ["NAMESPACE", "NAME", "PHASE", "AGE"]
    return [each.stdout for each in ran]


async def test_each_fault_is_one_sentence_and_a_faulty_file_changes_nothing(tmp_path: Path) -> None:
    manifests = folder(tmp_path / "manifests")
    wrong = tmp_path / "manifests" / "d-wrong.yaml"
    wrong.write_text(WRONG)
    async with plane(tmp_path / "plane") as dpuplane:
        ran = await dpuplane("apply", "-f", manifests)
        assert ran.status == 1 and not ran.stdout
        faults = [line.removeprefix(f"{wrong}: ") for line in ran.stderr.splitlines() if line.startswith(str(wrong))]
        assert faults == [
            "document 1: BFB default/other: spec.url: has $BFB_URL, a variable that nobody replaced",
            "document 2: DPUSet default/rack8: spec.dpuTemplate.spec.bfb.nam: is no field here; name is one",
            "document 2: DPUSet default/rack8: spec.dpuTemplate.spec.bfb.name: must be set",
            "document 3: DPUStorage: storage services on DPUs are not supported",
            "document 5: BFB default/\\u202eb: metadata.name: must be at most 253 lower-case letters, digits, '-' and "
            "'.', not \"\\u202eb\"",
            "document 4: DPUFlavor default/large: spec: 200083 characters are more than the 200000 allowed",
        ]
        assert ran.stderr.splitlines()[-1].startswith("Error: 6 faults, so nothing was applied; --keep-going ")
        assert not await dpuplane.names()
        assert (await dpuplane("diff", "-f", manifests)).status == 2
        ran = await dpuplane("apply", "-f", manifests, "--keep-going")
        assert ran.status == 1 and ran.stdout.splitlines() == [f"{name} created" for name in (SET_NAME, *NAMES)]
        wrong.write_text(json.dumps(IMAGE | {"metadata": {"name": "image", "namespace": "lab"}}))
        (tmp_path / "manifests" / "b-image.json").write_text(json.dumps(IMAGE | {"spec": {"url": "http://b"}}))
        ran = await dpuplane("apply", "-f", manifests)
        assert ran.status == 1 and not ran.stdout, "an update that is not allowed refuses the new object too"
        assert "b-image.json: document 1: BFB default/image: spec.url: " in ran.stderr
        assert not (await dpuplane("get", "bfb", "-n", "lab")).stdout


async def test_free_texts_of_an_object_are_shown_without_control_characters(tmp_path: Path) -> None:
    annotations = {"a": "red \x1b[31m\nName  other", "b": "plain"}
    image = {**IMAGE, "metadata": {"name": "image", "annotations": annotations}}
    (tmp_path / "image.json").write_text(json.dumps(image))
    async with plane(tmp_path / "plane") as dpuplane:
        assert (await dpuplane("apply", "-f", str(tmp_path / "image.json"))).status == 0
        ran = await dpuplane("describe", "bfb", "image")
    assert "Annotations  a='red \\x1b[31m\\nName  other',b=plain\n" in ran.stdout


async def test_two_appliers_of_one_object_are_both_applied_in_some_order(tmp_path: Path) -> None:
    files = []
    for flavor in ("one", "two"):
        files.append(tmp_path / f"{flavor}.yaml")
        files[-1].write_text(SET.replace("hbn", flavor))
    async with plane(tmp_path / "plane") as dpuplane:
        await dpuplane("apply", "-f", str(files[0]))
        both = await asyncio.gather(*(run("apply", "-f", str(file), server=dpuplane.server) for file in files))
        assert [ran.status for ran in both] == [0, 0], both
        found = (await dpuplane("get", "dpuset", "rack7", "-o", "json")).json()
        assert found["spec"]["dpuTemplate"]["spec"]["dpuFlavor"] in ("one", "two")
        assert found["metadata"]["generation"] in (2, 3)


async def test_annotations_are_set_and_removed_beside_those_of_others(tmp_path: Path) -> None:
    manifests = folder(tmp_path / "manifests")
    async with plane(tmp_path / "plane") as dpuplane:
        assert (await dpuplane("apply", "-f", manifests, "-n", "dpf")).status == 0
        ran = await dpuplane("annotate", "bfb", "image", "a=1", "example.org/b=x=y", "-n", "dpf")
        assert (ran.status, ran.stdout) == (0, f"{NAMES[0]} annotated\n")
        ran = await dpuplane("annotate", "bfb/image", "a=2", "-n", "dpf")
        assert ran.status == 1 and "a is already '1'; --overwrite replaces it" in ran.stderr
        assert (await dpuplane("annotate", "bfb/image", "a=2", "--overwrite", "-n", "dpf")).status == 0
        assert (await dpuplane("annotate", "bfb/image", "a-", "c=3", "-n", "dpf")).status == 0
        found = (await dpuplane("get", "bfb", "image", "-n", "dpf", "-o", "json")).json()
        assert found["metadata"]["annotations"] == {"example.org/b": "x=y", "c": "3"}
        assert found["metadata"]["generation"] == 1 and found["spec"] == IMAGE["spec"]


async def test_wrong_usage_and_unknown_names_have_their_exit_status(tmp_path: Path) -> None:
    async with plane(tmp_path / "plane") as dpuplane:
        for arguments, status, sentence in (
            (("get",), 2, "KIND: must be given"),
            (("get", "bfbb"), 2, "unknown kind 'bfbb': did you mean bfb?"),
            (("get", "bfb", "none"), 1, "'none' of kind 'BFB.provisioning.dpu.nvidia.com' does not exist"),
            (("get", "bfb", "a", "-A"), 2, "--all-namespaces: must not be given with a NAME"),
            (("delete", "bfb"), 2, "NAME: must be given after KIND"),
            (("annotate", "bfb", "image"), 2, "KIND, NAME and at least one KEY=VALUE or KEY- must be given"),
            (("annotate", "bfb", "image", "a=1", "b"), 2, "'b' must be KEY=VALUE or KEY-"),
            (("annotate", "bfb", "a=1"), 2, "NAME, --selector, --all: exactly one of them must be given"),
            (("annotate", "bfb", "image", "a=1", "--all"), 2, "exactly one of them must be given"),
            (("annotate", "bfb", "-l", "a=b", "a=1"), 1, "no bfbs in namespace default that could be annotated"),
            (("annotate", "bfb", "none", "a=1"), 1, "'none' of kind 'BFB.provisioning.dpu.nvidia.com' does not exist"),
            (("delete",), 2, "either KIND NAME... or -f must be given"),
            (("apply", "-f", str(tmp_path / "none")), 1, "No such file or directory"),
        ):
            ran = await dpuplane(*arguments)
            assert ran.status == status and sentence in ran.stderr, (arguments, ran)
        ran = await dpuplane("get", "bfb")
        assert (ran.status, ran.stdout, ran.stderr) == (0, "", "no bfbs in namespace default\n")
        ran = await dpuplane("get", "bfb,dpusets", "-A")
        assert (ran.status, ran.stdout, ran.stderr) == (0, "", "no bfbs or dpusets in any namespace\n")
        ran = await dpuplane("get", "all")
        assert (ran.status, ran.stdout, ran.stderr) == (0, "", "no objects in namespace default\n")

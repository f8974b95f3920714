"""Secrets of manifests without Kubernetes: kept outside the log if an object names them, and never shown."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

from tests.integration.test_cli_resources import plane

HIDDEN = "hidden-value"
ENCODED = base64.b64encode(HIDDEN.encode()).decode()
CLUSTER = """\
apiVersion: provisioning.dpu.nvidia.com/v1alpha1
kind: DPUCluster
metadata: {name: c, namespace: dpf}
spec: {type: static, kubeconfig: admin}
---
"""


def secret(name: str, **fields: object) -> str:
    metadata = {"name": name, "namespace": "dpf"}
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **fields}) + "\n---\n"


async def test_a_secret_that_an_object_names_is_kept_and_no_other(tmp_path: Path) -> None:
    file, kept = tmp_path / "a.yaml", tmp_path / "plane" / "secrets" / "dpf" / "admin.json"
    file.write_text(secret("admin", data={"admin.conf": ENCODED}) + CLUSTER + secret("pull", data={"x": ENCODED}))
    said = []
    async with plane(tmp_path / "plane") as dpuplane:
        ran = await dpuplane("apply", "-f", str(file), "--dry-run")
        assert (ran.status, "secret/admin kept (dry run)" in ran.stdout) == (0, True)
        assert not kept.exists()
        said.append(ran)
        ran = await dpuplane("apply", "-f", str(file))
        assert ran.status == 0, ran.stderr
        assert ran.stdout.splitlines()[0] == "secret/admin kept"
        assert ran.stderr == f"passed over: {file}: document 3: Secret dpf/pull\n"
        assert json.loads(kept.read_text())["data"] == {"admin.conf": ENCODED}
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert not kept.with_name("pull.json").exists()
        said.append(ran)

        file.write_text(secret("admin", stringData={"admin.conf": "newer"}))
        said.append(await dpuplane("apply", "-f", str(file)))
        assert said[-1].stdout == "secret/admin kept\n", "the plane has an object that names it"
        assert base64.b64decode(json.loads(kept.read_text())["data"]["admin.conf"]) == b"newer"

        file.write_text(secret("admin", data={"admin.conf": f"{HIDDEN}!"}))
        said.append(await dpuplane("apply", "-f", str(file)))
        assert (said[-1].status, "Secret dpf/admin: data.admin.conf: must be base64" in said[-1].stderr) == (1, True)

        file.write_text(secret("pull", data={}))
        said.append(await dpuplane("apply", "-f", str(file)))
        assert "the files have no object of a kind that the plane has" in said[-1].stderr

        file.write_text(secret("admin") + secret("pull"))
        said.append(await dpuplane("delete", "-f", str(file)))
        assert said[-1].stdout == "secret/admin deleted\n"
        assert said[-1].stderr == f"passed over: {file}: document 2: Secret dpf/pull\n"
        assert not kept.exists()
    log = [path for path in (tmp_path / "plane").rglob("*") if path.is_file()]
    assert log
    for value in (HIDDEN, ENCODED, "newer"):
        assert not any(value.encode() in path.read_bytes() for path in log)
        assert not any(value in ran.stdout + ran.stderr for ran in said)

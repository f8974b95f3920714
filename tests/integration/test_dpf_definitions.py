"""DPF's kinds at a real API server: what it accepts, and whether the checks without Kubernetes agree with it.

`dpf_crds` compares with the definitions of release 24.10 in the folder that DPF_CRDS names. They are installed under
another domain, as the server has ours under the real one.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, seed, settings

from drivers.kubernetes.client import connect
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.validation import Validated, schema_of, validate
from tests.support.dpf_manifests import OLD, Given, manifests
from tests.support.dpf_mutations import Mutated, mutated
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.fixtures import DPF_CRDS
from tests.support.kubernetes.requests import DEFINITIONS, create_namespace, install
from tests.support.schema_examples import example

DRY_RUN = "?dryRun=All&fieldValidation=Strict"
NAMESPACE = "lab"
EXAMPLES = 300


class Server:
    """An API server with the kinds of DPF, for tests that are not asynchronous."""

    def __init__(self, runner: asyncio.Runner, api: KubernetesApi) -> None:
        self._runner = runner
        self._api = api
        self._stored: dict[str, str] = {}
        """The uid of each stored object by its path."""

    def create(self, given: Given, manifest: Mapping[str, Any], domain: str = "") -> dict[str, Any]:
        """The object that a dry run creates."""
        path = given.kind.path(NAMESPACE).replace("/apis/", f"/apis/{domain}", 1)
        body = {**manifest, "apiVersion": f"{domain}{manifest['apiVersion']}"}
        found: dict[str, Any] = json.loads(self._runner.run(self._api.create(path + DRY_RUN, body)))
        return found

    def store(self, given: Given) -> dict[str, Any]:
        """The object of a manifest, stored."""
        path = given.kind.path(NAMESPACE, given.manifest["metadata"]["name"])
        if path not in self._stored:
            created = json.loads(self._runner.run(self._api.create(given.kind.path(NAMESPACE), given.manifest)))
            self._stored[path] = created["metadata"]["uid"]
        found: dict[str, Any] = json.loads(self._runner.run(self._api.get(path)))
        return found

    def install(self, *definitions: Mapping[str, Any]) -> None:
        """Install definitions until the end of the tests."""
        self._runner.run(install(self._api, *definitions))
        for each in definitions:
            path = f"{DEFINITIONS}/{each['metadata']['name']}"
            self._stored[path] = json.loads(self._runner.run(self._api.get(path)))["metadata"]["uid"]

    def clear(self) -> None:
        """Delete what the tests have stored."""
        for path, uid in self._stored.items():
            self._runner.run(self._api.delete(path, uid=uid))

    def replace(self, given: Given, manifest: Mapping[str, Any], part: str = "") -> dict[str, Any]:
        """The object that a dry run replaces, or its status."""
        path = given.kind.path(NAMESPACE, given.manifest["metadata"]["name"], part)
        found: dict[str, Any] = json.loads(self._runner.run(self._api.replace(path + DRY_RUN, manifest)))
        return found


def more_than_the_server(found: Validated) -> list[str]:
    """The faults of a manifest that the server accepts, but for one sort: a list in the place of a string that has a
    format. The server's library checks neither there, and readers of the object could not use it."""
    return [str(fault) for fault in found.faults if not fault.sentence.startswith("must be a string, but is [")]


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[Server]:
    with asyncio.Runner() as runner:
        connection = connect(str(control_plane.kubeconfig()))
        api = runner.run(connection.__aenter__())
        runner.run(create_namespace(api, NAMESPACE))
        runner.run(install(api, *map(definition, KINDS)))
        found = Server(runner, api)
        yield found
        found.clear()
        runner.run(connection.__aexit__(None, None, None))


@pytest.mark.parametrize("each", manifests(), ids=str)
def test_the_server_accepts_a_manifest_and_applies_the_same_defaults(server: Server, each: Given) -> None:
    found = server.create(each, each.manifest)
    assert found["spec"] == validate(each.kind, each.manifest).manifest["spec"]


@seed(24_10)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
@given(mutated(manifests()))
def test_a_changed_manifest_is_accepted_by_both_or_refused_by_both(server: Server, each: Mutated) -> None:
    found = validate(each.given.kind, each.manifest, with_admission=False)
    try:
        created = server.create(each.given, each.manifest)
    except ApiError as error:
        assert error.status in (400, 422), error
        assert found.faults, f"only the server refuses: {error}"
        return
    assert more_than_the_server(found) == []
    if not found.faults:
        assert created.get("spec") == found.manifest.get("spec")


@seed(24_10)
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck), database=None)
@given(mutated(manifests()))
def test_a_changed_object_is_accepted_by_both_or_refused_by_both(server: Server, each: Mutated) -> None:
    stored = server.store(each.given)
    changed = {**copy.deepcopy(stored), "spec": each.manifest.get("spec")}
    found = validate(each.given.kind, changed, stored, with_admission=False)
    try:
        server.replace(each.given, changed)
    except ApiError as error:
        assert error.status in (400, 422), error
        assert found.faults, f"only the server refuses: {error}"
        return
    assert more_than_the_server(found) == []


def flavor(manifests: Sequence[Given]) -> Given:
    """The first DPUFlavor of these manifests, with a name of its own."""
    found = next(each for each in manifests if each.kind.name == "DPUFlavor")
    return found._replace(manifest={**found.manifest, "metadata": {"name": "edited", "namespace": NAMESPACE}})


@pytest.mark.parametrize(
    ("field", "value"), [("sysctl", {"parameters": ["a=7"]}), ("bfcfgParameters", ["A=7"]), ("configFiles", [])]
)
def test_the_server_lets_users_edit_the_same_fields_of_a_flavor(server: Server, field: str, value: object) -> None:
    given = flavor(manifests())
    stored = server.store(given)
    changed = {**stored, "spec": {**stored["spec"], field: value}}
    found = [str(fault) for fault in validate(given.kind, changed, stored).faults]
    if not found:
        assert server.replace(given, changed)["spec"][field] == value
        return
    with pytest.raises(ApiError) as refused:
        server.replace(given, changed)
    assert field != "sysctl" and found[0].partition(": ")[2] in str(refused.value)


def with_statuses() -> list[Given]:
    """A manifest of each kind that has a status, with every field of the status."""
    found = {given.kind.name: given for given in manifests() if given.kind.has_status}
    return [
        each._replace(manifest={**each.manifest, "status": example(schema_of(each.kind)["properties"]["status"])})
        for each in found.values()
    ]


@pytest.mark.parametrize("each", with_statuses(), ids=str)
def test_the_server_accepts_a_status_with_every_field(server: Server, each: Given) -> None:
    stored = server.store(each._replace(manifest={**each.manifest, "status": None}))
    written = {**stored, "status": each.manifest["status"]}
    found = validate(each.kind, written, stored, with_status=True)
    assert [str(fault) for fault in found.faults] == []
    assert server.replace(each, written, "status").get("status") == found.manifest["status"]


@seed(24_10)
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck), database=None)
@given(mutated(with_statuses(), "status"))
def test_a_changed_status_is_accepted_by_both_or_refused_by_both(server: Server, each: Mutated) -> None:
    stored = server.store(each.given._replace(manifest={**each.given.manifest, "status": None}))
    changed = {**copy.deepcopy(stored), "status": each.manifest.get("status")}
    found = validate(each.given.kind, changed, stored, with_status=True)
    try:
        server.replace(each.given, changed, "status")
    except ApiError as error:
        assert error.status in (400, 422), error
        assert found.faults, f"only the server refuses: {error}"
        return
    assert more_than_the_server(found) == []


@pytest.fixture(scope="module")
def theirs(server: Server) -> str:
    """The prefix of the groups under which DPF's own definitions are installed."""
    domain = "their-"
    documents = [yaml.safe_load(path.read_text()) for path in sorted(Path(os.environ[DPF_CRDS]).glob("*.yaml"))]
    for document in documents:
        document["spec"].pop("conversion", None)
        document["spec"]["group"] = domain + document["spec"]["group"]
        document["metadata"] = {"name": f"{document['spec']['names']['plural']}.{document['spec']['group']}"}
    server.install(*documents)
    return domain


@pytest.mark.dpf_crds
@pytest.mark.parametrize("each", manifests(OLD), ids=str)
def test_the_definitions_of_release_24_10_accept_its_manifests(server: Server, theirs: str, each: Given) -> None:
    assert server.create(each, each.manifest, theirs)["kind"] == each.kind.name

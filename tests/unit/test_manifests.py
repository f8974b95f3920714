"""Manifests as users write them: documents, lists, JSON, other kinds, variables; each fault with its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from deploy.cli.resources.kinds import Named, find_kind, named_objects, names_of
from deploy.cli.resources.manifest_files import read_files
from deploy.cli.resources.manifests import LAST_APPLIED, Manifests, merged, read_manifests
from deploy.cli.resources.objects import age_text, values_at
from schemas.resources.dpf import KINDS, REFUSED_GROUPS

V1 = "provisioning.dpu.nvidia.com/v1alpha1"


def bfb(name: str = "image", *, namespace: str = "dpf", url: str = "http://images/a.bfb", more: str = "") -> str:
    at = f", namespace: {namespace}" if namespace else ""
    return f"apiVersion: {V1}\nkind: BFB\nmetadata: {{name: {name}{at}{more}}}\nspec: {{url: '{url}'}}\n"


def read(text: str, namespace: str = "") -> Manifests:
    return read_manifests(text, "a.yaml", namespace)


def titles(found: Manifests) -> list[str]:
    return [each.title for each in found.objects]


def test_a_text_may_have_several_documents_and_empty_ones() -> None:
    found = read(f"---\n{bfb('one')}---\n---\n{bfb('two')}")
    assert titles(found) == ["BFB dpf/one", "BFB dpf/two"] and not found.faults and not found.passed_over
    assert [each.place for each in found.objects] == ["a.yaml: document 1", "a.yaml: document 3"]
    assert found.objects[0].spec == {"url": "http://images/a.bfb"}


@pytest.mark.parametrize("kind", ["List", "BFBList"])
def test_a_list_stands_for_its_items(kind: str) -> None:
    item = {"apiVersion": V1, "kind": "BFB", "metadata": {"name": "one"}, "spec": {"url": "http://a"}}
    wrong = item | {"metadata": {"name": "two"}, "spec": {}}
    found = read(json.dumps({"apiVersion": "v1", "kind": kind, "items": [item, wrong]}), "dpf")
    assert titles(found) == ["BFB dpf/one"]
    assert found.faults == ["a.yaml: document 1, item 2: BFB dpf/two: spec.url: must be set"]


def test_every_fault_of_a_text_is_one_sentence_with_its_place() -> None:
    wrong = f"apiVersion: {V1}\nkind: BFB\nmetadata: {{name: Image_1}}\nspec: {{urls: a}}\n"
    found = read(
        f"{wrong}---\n- 1\n---\nkind: BFB\n---\napiVersion: {V1}\nkind: Bfb\nmetadata: {{name: a}}\n---\n{bfb()}"
    )
    assert titles(found) == ["BFB dpf/image"]
    starts = [
        "a.yaml: document 1: BFB default/Image_1: metadata.name: must be at most 253 lower-case letters",
        "a.yaml: document 1: BFB default/Image_1: spec.urls: is no field here; url is one",
        "a.yaml: document 1: BFB default/Image_1: spec.url: must be set",
        "a.yaml: document 2: must be an object with apiVersion and kind, and is a list",
        "a.yaml: document 3: apiVersion: must be set",
        "a.yaml: document 4: kind: 'Bfb' is no kind of provisioning.dpu.nvidia.com; the kinds are BFB, ",
    ]
    assert len(found.faults) == len(starts), found.faults
    assert all(fault.startswith(start) for fault, start in zip(found.faults, starts, strict=True)), found.faults


def test_other_kinds_and_values_of_charts_are_passed_over_and_named() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: pull, namespace: dpf}\n"
    policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: $NAME}\n"
    found = read(f"{secret}---\n{policy}---\nreplicas: 3\n---\n{bfb()}")
    assert titles(found) == ["BFB dpf/image"] and not found.faults
    assert found.passed_over == [
        "a.yaml: document 1: Secret dpf/pull",
        "a.yaml: document 2: NetworkPolicy $NAME",
        "a.yaml: document 3: a document without apiVersion and kind, such as the values of a chart",
    ]


@pytest.mark.parametrize("group", sorted(REFUSED_GROUPS))
def test_kinds_that_the_plane_refuses_are_faults_with_their_sentence(group: str) -> None:
    found = read(f"apiVersion: {group}/v1alpha1\nkind: Any\nmetadata: {{name: a}}\n")
    assert found.faults == [f"a.yaml: document 1: Any: {REFUSED_GROUPS[group]}"] and not found.passed_over


def test_a_variable_that_nobody_replaced_is_reported_as_that_and_as_nothing_else() -> None:
    found = read(bfb("$NAME", url="$BFB_URL", more=", labels: {tier: '${TIER}'}"))
    assert not found.objects
    assert sorted(fault.partition("BFB dpf/$NAME: ")[2] for fault in found.faults) == [
        "metadata.labels.tier: has ${TIER}, a variable that nobody replaced",
        "metadata.name: has $NAME, a variable that nobody replaced",
        "spec.url: has $BFB_URL, a variable that nobody replaced",
    ]


def test_the_namespace_is_that_of_the_object_or_of_the_command() -> None:
    assert titles(read(bfb(namespace=""))) == ["BFB default/image"]
    assert titles(read(bfb(namespace=""), "lab")) == ["BFB lab/image"]
    assert titles(read(bfb(), "dpf")) == ["BFB dpf/image"]
    assert read(bfb(), "lab").faults == [
        "a.yaml: document 1: BFB dpf/image: metadata.namespace: is 'dpf', and the command names 'lab'"
    ]


def test_another_version_and_a_generated_name_are_faults() -> None:
    (version,) = read(bfb().replace("v1alpha1", "v1beta1")).faults
    assert version.endswith(f"apiVersion: 'provisioning.dpu.nvidia.com/v1beta1' must be {V1}")
    (name,) = read(bfb().replace("{name: image", "{generateName: image-")).faults
    assert "BFB dpf/image-: metadata.generateName: must not be given without metadata.name" in name


def test_an_exported_object_is_taken_without_what_its_cluster_added() -> None:
    added = f", uid: u-1, resourceVersion: '7', generation: 3, annotations: {{{LAST_APPLIED}: '{{}}', kept: 'yes'}}"
    (found,) = read(f"{bfb(more=added)}status: {{phase: Ready}}\n").objects
    assert found.annotations == {"kept": "yes"} and not found.labels and set(found.spec) == {"url"}


def test_scalars_are_read_as_kubectl_reads_them() -> None:
    text = (
        "apiVersion: svc.dpu.nvidia.com/v1alpha1\nkind: DPUService\n"
        "metadata: {name: a, annotations: {day: 2024-10-01}}\n"
        "spec:\n  helmChart:\n    source: {repoURL: 'https://a', version: 1.0.0, chart: a}\n"
        "    values: {at: 10:30, day: 2024-10-01, 8080: one, true: two}\n"
    )
    found = read(text)
    assert not found.faults
    (service,) = found.objects
    assert service.annotations == {"day": "2024-10-01"}
    assert service.spec["helmChart"]["values"] == {"at": "10:30", "day": "2024-10-01", "8080": "one", "true": "two"}


def test_text_that_is_no_yaml_is_one_fault_with_its_line() -> None:
    (fault,) = read("a: [1\nb: 2\n").faults
    assert fault.startswith("a.yaml: must be YAML or JSON: line ")


def test_an_object_that_is_given_twice_is_a_fault_of_the_second_place() -> None:
    whole = merged([read_manifests(bfb(), "a.yaml"), read_manifests(f"{bfb('b')}---\n{bfb()}", "b.yaml")])
    assert titles(whole) == ["BFB dpf/image", "BFB dpf/b"]
    assert whole.faults == ["b.yaml: document 2: BFB dpf/image is given twice, first in a.yaml: document 1"]


def test_a_deletion_needs_only_the_identity_of_an_object() -> None:
    text = f"apiVersion: {V1.replace('v1alpha1', 'v9')}\nkind: BFB\nmetadata: {{name: a}}\nspec: {{urls: 3}}\n"
    assert titles(read_manifests(text, "a.yaml", is_checked=False)) == ["BFB default/a"]
    assert read_manifests(f"apiVersion: {V1}\nkind: BFB\n", "a.yaml", is_checked=False).faults == [
        "a.yaml: document 1: BFB default/(no name): metadata.name: must be set"
    ]


def test_a_folder_is_read_in_order_and_other_files_are_left_alone(tmp_path: Path) -> None:
    for name, text in {"b.yml": bfb("b"), "a.yaml": bfb("a"), "c.json": "{}", "d.txt": "["}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "e.yaml").write_text(bfb("e"))
    found = read_files([str(tmp_path)], "")
    assert titles(found) == ["BFB dpf/a", "BFB dpf/b"]
    assert [line.rpartition(": ")[0] for line in found.passed_over] == [f"{tmp_path}/c.json: document 1"]
    assert titles(read_files([str(tmp_path)], "", recursive=True)) == ["BFB dpf/a", "BFB dpf/b", "BFB dpf/e"]


def test_files_that_cannot_be_read_are_faults_beside_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(bfb())
    (tmp_path / "b.yaml").write_bytes(b"a: \xff")
    found = read_files([str(tmp_path), str(tmp_path / "none.yaml")], "")
    assert titles(found) == ["BFB dpf/image"]
    assert found.faults == [
        f"{tmp_path}/b.yaml: byte 4 is not UTF-8",
        f"{tmp_path}/none.yaml: No such file or directory",
    ]


def test_a_kind_has_every_name_that_kubectl_takes() -> None:
    for kind in KINDS:
        for name in (*names_of(kind), kind.name, kind.plural.upper()):
            assert find_kind(name) is kind, name
    with pytest.raises(click.UsageError, match="unknown kind 'dpusett': did you mean dpuset"):
        find_kind("dpusett")


@pytest.mark.parametrize(
    ("words", "names"), [(["bfb"], [""]), (["bfb", "a", "b"], ["a", "b"]), (["bfb/a", "bfbs/b"], ["a", "b"])]
)
def test_arguments_name_objects_as_in_kubectl(words: Sequence[str], names: Sequence[str]) -> None:
    assert named_objects(words) == [Named(find_kind("bfb"), name) for name in names]


def test_arguments_name_several_kinds_as_in_kubectl() -> None:
    bfb, dpu_set = find_kind("bfb"), find_kind("dpuset")
    assert named_objects(["bfb,dpusets,bfbs"]) == [Named(bfb), Named(dpu_set)]
    assert named_objects(["bfb,dpuset", "a"]) == [Named(bfb, "a"), Named(dpu_set, "a")]
    assert named_objects(["all"]) == [Named(kind) for kind in KINDS]


@pytest.mark.parametrize("words", [[], [""], ["bfb/a", "b"], ["bfb/"], ["bfb,,dpuset"], ["all", "a"]])
def test_other_arguments_are_wrong_usage(words: Sequence[str]) -> None:
    with pytest.raises(click.UsageError):
        named_objects(words)


def test_printer_columns_reach_fields_indices_and_conditions() -> None:
    found = {"a": {"b-c": [{"type": "X", "status": "True"}, {"type": "Ready", "status": "False"}]}, "n": 3}
    assert values_at(found, ".n") == [3]
    assert values_at(found, ".a.b-c[?(@.type=='Ready')].status") == ["False"]
    assert values_at(found, ".a.b-c[0].type") == ["X"]
    assert values_at(found, ".a.none.more") == values_at(found, ".n[0]") == []


def test_an_age_has_one_unit() -> None:
    assert [age_text(1_000 * seconds) for seconds in (0, 119, 120, 7_199, 7_200, 172_799, 172_800)] == [
        "0s",
        "119s",
        "2m",
        "119m",
        "2h",
        "47h",
        "2d",
    ]

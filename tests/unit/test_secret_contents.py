"""The content of Secrets that are made from others, and the faults of kubeconfigs, which never quote what is secret."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from drivers.kubernetes.secret_contents import ContentFault, secret_content
from drivers.kubernetes.secret_kubeconfig import cluster_access
from projections.resources.kinds import SECRET
from projections.resources.state import ObjectId
from projections.resources.wanted import SecretSource

AT = ObjectId("east", SECRET, "dpf", "c-admin-kubeconfig")
HIDDEN = "hidden-value"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(**user: str) -> dict[str, Any]:
    cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded("ca")}
    given = user or {"client-certificate-data": encoded("cert"), "client-key-data": encoded(HIDDEN)}
    return {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "admin", "user": given}]}


def source(document: Any) -> dict[str, Any]:
    return {"type": "Opaque", "data": {"admin.conf": encoded(yaml.safe_dump(document))}}


def decoded(content: dict[str, Any]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in content["data"].items()}


def test_a_copy_has_the_data_and_the_type_of_its_source() -> None:
    found = {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": encoded("{}")}, "kind": "Secret"}
    assert secret_content(SecretSource(AT), found) == {key: found[key] for key in ("type", "data")}


def test_a_cluster_of_argo_cd_is_made_from_a_kubeconfig() -> None:
    content = secret_content(SecretSource(AT, "argocd-cluster", "dpf-c"), source(kubeconfig()))
    found = decoded(content)
    tls = {"caData": encoded("ca"), "certData": encoded("cert"), "keyData": encoded(HIDDEN)}
    assert (found["name"], found["server"]) == ("dpf-c", "https://10.0.0.1:6443")
    assert json.loads(found["config"]) == {"tlsClientConfig": tls}
    with_token = secret_content(SecretSource(AT, "argocd-cluster", "dpf-c"), source(kubeconfig(token=HIDDEN)))
    assert json.loads(decoded(with_token)["config"]) == {
        "tlsClientConfig": {"caData": encoded("ca")},
        "bearerToken": HIDDEN,
    }


TWO = kubeconfig(token=HIDDEN) | {"clusters": kubeconfig()["clusters"] * 2}
PLAIN = kubeconfig(token=HIDDEN)
PLAIN["clusters"][0]["cluster"]["server"] = f"http://{HIDDEN}"


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ([HIDDEN], "must have exactly one cluster with its fields, and has 0"),
        (TWO, "must have exactly one cluster with its fields, and has 2"),
        (kubeconfig(token=HIDDEN) | {"users": HIDDEN}, "must have exactly one user with its fields, and has 0"),
        (kubeconfig(token=HIDDEN) | {"users": [HIDDEN]}, "must have exactly one user with its fields, and has 1"),
        (PLAIN, "the server of its cluster must be an https URL"),
        (kubeconfig(tokenFile=HIDDEN), "the field tokenFile of its user is not allowed"),
        (kubeconfig(**{"client-key-data": HIDDEN + "!"}), "its client-key-data is not base64"),
        (kubeconfig(username=HIDDEN), "neither a token nor a certificate"),
    ],
)
def test_a_fault_of_a_kubeconfig_does_not_quote_it(document: Any, fault: str) -> None:
    with pytest.raises(ContentFault, match=fault) as refused:
        secret_content(SecretSource(AT, "argocd-cluster"), source(document))
    assert HIDDEN not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_secret_without_a_kubeconfig_says_which_key_it_lacks() -> None:
    with pytest.raises(ContentFault, match="no key admin"):
        secret_content(SecretSource(AT, "argocd-cluster"), {"data": None})


def test_an_access_does_not_show_its_credentials() -> None:
    access = cluster_access("Secret dpf/a", yaml.safe_dump(kubeconfig(token=HIDDEN)).encode())
    assert access.token == HIDDEN
    assert HIDDEN not in repr(access)
    with pytest.raises(KubeconfigInvalid):
        cluster_access("Secret dpf/a", b"\xff: {")

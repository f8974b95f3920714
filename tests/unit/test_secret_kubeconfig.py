"""The kubeconfig in a Secret: one cluster and one user, and nothing that acts on the machine of the plane."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import yaml

from drivers.kubernetes.cluster_connections import ClusterConnections
from drivers.kubernetes.kubeconfig import KubeconfigInvalid
from drivers.kubernetes.secret_kubeconfig import SecretMissing, checked_kubeconfig, read_secret_kubeconfig
from schemas.kubernetes.api import NOT_FOUND, ApiError


def config(cluster: Any = None, user: Any = None, **more: Any) -> dict[str, Any]:
    found = {"server": "https://10.0.0.1:6443", "certificate-authority-data": "Y2E="}
    return {
        "clusters": [{"name": "c", "cluster": found if cluster is None else cluster}],
        "users": [{"name": "u", "user": {"token": "hidden"} if user is None else user}],
        "contexts": [],
        **more,
    }


def checked(given: Any) -> Any:
    return checked_kubeconfig("Secret dpf/a", yaml.safe_dump(given).encode())


def test_the_one_cluster_and_user_become_the_context() -> None:
    found = checked(config())
    assert found["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:6443"
    assert found["users"][0]["user"] == {"token": "hidden"}
    assert found["current-context"] == found["contexts"][0]["name"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "exactly one cluster"),
        ([], "exactly one cluster"),
        (config(clusters=[]), "exactly one cluster with its fields, and has 0"),
        (config(clusters=config()["clusters"] * 2), "exactly one cluster with its fields, and has 2"),
        (config(users=config()["users"] * 3), "exactly one user with its fields, and has 3"),
        (config(users="text"), "exactly one user"),
        (config(cluster={"server": "http://10.0.0.1"}), "https"),
        (config(cluster={}), "https"),
        (config(cluster={"server": "https://a", "certificate-authority": "/etc/passwd"}), "certificate-authority"),
        (config(cluster={"server": "https://a", "proxy-url": "http://b"}), "proxy-url"),
        (config(user={"exec": {"command": "sh"}}), "exec"),
        (config(user={"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (config(user={"tokenFile": "/var/run/secrets/token"}), "tokenFile"),
        (config(user={"client-key": "/etc/key"}), "client-key"),
    ],
)
def test_what_names_files_or_programs_or_several_clusters_is_refused(given: Any, why: str) -> None:
    with pytest.raises(KubeconfigInvalid, match=why) as raised:
        checked(given)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"{", b"a: [", b"[" * 5_000, b"x" * 300_000])
def test_other_content_is_refused_without_quoting_it(text: bytes) -> None:
    with pytest.raises(KubeconfigInvalid) as raised:
        checked_kubeconfig("Secret dpf/a", text)
    assert len(str(raised.value)) < 300


class _Secrets:
    """An API server with one Secret."""

    def __init__(self, answer: bytes | ApiError) -> None:
        self.answer = answer

    async def get(self, path: str) -> bytes:
        assert path == "/api/v1/namespaces/dpf/secrets/a"
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def secret(data: Any) -> bytes:
    return json.dumps({"data": data}).encode()


async def test_a_secret_is_read() -> None:
    text = base64.b64encode(yaml.safe_dump(config()).encode()).decode()
    api: Any = _Secrets(secret({"admin.conf": text}))
    assert (await read_secret_kubeconfig(api, "dpf", "a"))["kind"] == "Config"


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (ApiError(NOT_FOUND, "NotFound", "no"), SecretMissing, "does not exist"),
        (ApiError(0, "Unreachable", "no connection"), ApiError, "no connection"),
        (secret({}), KubeconfigInvalid, "no key admin.conf"),
        (secret(None), KubeconfigInvalid, "no key admin.conf"),
        (secret({"admin.conf": "!"}), KubeconfigInvalid, "not valid"),
        (b"[]", KubeconfigInvalid, "not valid"),
    ],
)
async def test_a_secret_that_cannot_be_used_is_named(
    answer: bytes | ApiError, error: type[Exception], why: str
) -> None:
    api: Any = _Secrets(answer)
    with pytest.raises(error, match=why):
        await read_secret_kubeconfig(api, "dpf", "a")


def test_connections_are_replaced_and_a_late_removal_leaves_the_newer_one() -> None:
    connections, changes = ClusterConnections(), []
    end = connections.subscribe(lambda: changes.append(connections.sources()))
    first: Any = object()
    second: Any = object()
    connections.add("east", first)
    connections.add("east", second)
    connections.remove("east", first)
    assert connections.api("east") == second
    connections.remove("east", second)
    assert connections.api("east") is None
    end()
    connections.add("west", first)
    assert changes == [("east",), ("east",), ()]

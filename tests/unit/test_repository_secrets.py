"""Which credential Argo CD's Secrets have for a chart."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from drivers.charts.repository_secrets import SECRET_TYPE, Credential, credential_for
from projections.resources.charts import Chart


def secret(name: str, url: str, kind: str = "repository", **fields: str) -> dict[str, Any]:
    given = {"type": "helm", "url": url, "username": "robot", "password": name} | fields
    data = {key: base64.b64encode(value.encode()).decode() for key, value in given.items() if value}
    return {"metadata": {"name": name, "namespace": "argocd", "labels": {SECRET_TYPE: kind}}, "data": data}


def chosen(repository: str, *secrets: dict[str, Any]) -> str:
    """The name of the Secret that is used for a repository."""
    found = credential_for(Chart(repository, "hbn", "1"), secrets)
    return found.secret.removeprefix("argocd/") if found else ""


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        ("https://charts.example/doca", "doca"),
        ("https://Charts.Example/doca/", "doca"),
        ("https://charts.example/doca/more", "all"),
        ("https://charts.example/team/a", "team"),
        ("https://charts.example/teams", "all"),
        ("https://charts.example", "all"),
        ("http://charts.example/doca", ""),
        ("https://charts.example.evil/doca", ""),
        ("oci://registry.example/charts", "registry"),
        ("oci://registry.example/charts/a", ""),
    ],
)
def test_a_secret_of_the_repository_comes_before_the_longest_beginning(repository: str, name: str) -> None:
    secrets = [
        secret("all", "https://charts.example", "repo-creds"),
        secret("team", "https://charts.example/team", "repo-creds"),
        secret("doca", "https://charts.example/doca"),
        secret("registry", "registry.example/charts", enableOCI="true"),
    ]
    assert chosen(repository, *secrets) == chosen(repository, *reversed(secrets)) == name


def test_other_secrets_have_no_credential_for_charts() -> None:
    url = "https://charts.example"
    assert chosen(url, secret("git", url, type="git"), secret("untyped", url, type="")) == ""
    assert chosen(url, secret("open", url, password=""), secret("creds", url, "repo-creds")) == "creds"
    assert chosen(url, {"metadata": {}, "data": {"url": "%", "password": 1}}, {}) == ""
    assert chosen("", secret("empty", "", "repo-creds")) == ""


def test_a_password_is_text_as_it_was_given() -> None:
    found = credential_for(Chart("https://a", "b", "1"), [secret("x", "https://a", username="j", password="pä:ss\n")])
    assert found == Credential("argocd/x", "j", "pä:ss")
    assert base64.b64decode(found.header.removeprefix("Basic ")).decode() == "j:pä:ss"

"""When tokens of credential requests are renewed, and the Secrets that carry them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.kubernetes.secret_kubeconfig import ClusterAccess
from drivers.kubernetes.token_secrets import token_secret
from projections.resources.kinds import DPU_SERVICE_CREDENTIAL_REQUEST
from projections.resources.service_specs import CredentialRequestSpec
from projections.resources.services.tokens import (
    AGE_MS_MAX,
    TokenWish,
    failure_of,
    observation_of,
    renewal_ms,
    time_ms,
    token_known,
    token_wish,
)
from projections.resources.specs import read
from projections.resources.state import object_id
from tests.support.derivations import key, row

REQUEST = key(DPU_SERVICE_CREDENTIAL_REQUEST, "r")
ISSUED_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
ACCESS = ClusterAccess("c", "https://[fd00::1]:6443", b"authority")


def wish(**changes: Any) -> TokenWish:
    spec = {"serviceAccount": {"name": "robot"}, "secret": {"name": "token", "namespace": "dpf"}, "type": "kubeconfig"}
    found = read(CredentialRequestSpec, row(spec | changes))
    assert isinstance(found, CredentialRequestSpec)
    return token_wish(object_id(REQUEST), found)


def data_of(secret: dict[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


@given(st.integers(600, 40 * 86_400))
def test_a_token_is_renewed_in_the_last_fifth_of_its_life_and_after_a_day(seconds: int) -> None:
    asked = wish(duration=f"{seconds}s")
    life_ms = seconds * 1_000
    known = token_known(observation_of(asked, ISSUED_MS, ISSUED_MS + life_ms))
    age_ms = renewal_ms(asked, known) - ISSUED_MS
    assert min(life_ms * 0.8, AGE_MS_MAX) <= age_ms + 1
    assert age_ms <= min(life_ms * 0.9, AGE_MS_MAX)
    assert renewal_ms(asked, known) == renewal_ms(asked, token_known(known.text))


def test_renewals_of_many_tokens_are_spread() -> None:
    times = set()
    for number in range(50):
        asked = wish()._replace(key=f"{REQUEST}{number}")
        known = token_known(observation_of(asked, ISSUED_MS, ISSUED_MS + HOUR_MS))
        times.add(renewal_ms(asked, known) // 10_000)
    assert len(times) > 20


@pytest.mark.parametrize(
    "change",
    [
        {"serviceAccount": {"name": "other"}},
        {"secret": {"name": "other"}},
        {"targetCluster": {"name": "c", "namespace": "dpf"}},
        {"type": "tokenFile"},
        {"duration": "2h"},
        {"metadata": {"labels": {"a": "1"}}},
    ],
)
def test_a_changed_request_gets_a_token_at_once(change: dict[str, Any]) -> None:
    known = token_known(observation_of(wish(), ISSUED_MS, ISSUED_MS + HOUR_MS))
    assert renewal_ms(wish(), known) > ISSUED_MS
    assert renewal_ms(wish(**change), known) == 0


@pytest.mark.parametrize("fields", [None, {}, {"issuedAt": "x", "expirationTimestamp": 7, "version": 1}])
def test_a_request_of_which_nothing_is_known_gets_a_token_at_once(fields: dict[str, Any] | None) -> None:
    assert renewal_ms(wish(), token_known(fields)) == 0


def test_a_failed_renewal_leaves_a_valid_token_ready() -> None:
    known = token_known(observation_of(wish(), ISSUED_MS, ISSUED_MS + HOUR_MS))
    early = failure_of(known, "no answer", ISSUED_MS + HOUR_MS - 1)
    late = failure_of(known, "no answer", ISSUED_MS + HOUR_MS)
    assert (early["ready"], late["ready"], late["message"]) == (True, False, "no answer")
    assert renewal_ms(wish(), token_known(late)) == renewal_ms(wish(), known)
    assert failure_of(token_known(None), "no answer", 0) == {"ready": False, "message": "no answer"}


def test_durations_of_several_units_add_up() -> None:
    assert wish(duration="1h30m").seconds == 5_400
    assert wish(duration="1.5h").seconds == 5_400
    assert wish().seconds is None
    assert time_ms("2026-01-01T00:00:00Z") == 1_767_225_600_000


def test_a_secret_has_the_form_that_the_request_names() -> None:
    labels = {"a": "1"}
    secret = token_secret(wish(metadata={"labels": labels}), ACCESS, "hidden")
    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == ("token", "dpf")
    assert secret["metadata"]["labels"]["a"] == "1"
    assert secret["metadata"]["labels"]["svc.dpu.nvidia.com/credential-request-name"] == "r"
    kubeconfig = json.loads(data_of(secret)["kubeconfig"])
    assert kubeconfig["users"] == [{"name": "robot", "user": {"token": "hidden"}}]
    assert kubeconfig["contexts"][0]["context"] == {"cluster": "c", "namespace": "default", "user": "robot"}
    files = data_of(token_secret(wish(type="tokenFile"), ACCESS, "hidden"))
    assert files == {
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "KUBERNETES_CA_DATA": "authority",
        "TOKEN_FILE": "hidden",
    }

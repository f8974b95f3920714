"""When the token of a DPUServiceCredentialRequest is renewed, and what is known of the last one.

What is known comes from the observation of the request: which account, cluster and Secret the last token was for, and
from when until when it is valid. The token itself is never observed. A token is renewed after 80 % of its life and a
share of the next 10 %, which spreads the requests of many tokens, and after 24 hours at the latest.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from projections.resources.clusters import cluster_source
from projections.resources.durations import duration_ms
from projections.resources.service_specs import CredentialRequestSpec, NamespacedName
from projections.resources.services.credentials import DEFAULT_NAMESPACE, request_labels, target_cluster
from projections.resources.specs import JSON, Labels
from projections.resources.state import ObjectId
from projections.resources.wanted import digest

RENEWED_AT = 0.8
JITTER = 0.1
AGE_MS_MAX = 24 * 3_600_000
_SHARES = 1 << 40


class TokenWish(NamedTuple):
    """The token that a request asks for. `source` is the source of the cluster that it is for; `target` is the name of
    the DPUCluster, empty for the cluster of the hosts. `version` changes with any of these."""

    key: str
    source: str
    target: str
    cluster: str | None
    account: tuple[str, str]
    secret: tuple[str, str]
    form: str
    seconds: int | None
    labels: Labels
    annotations: Labels
    version: str


class TokenKnown(NamedTuple):
    """What is observed of the last token. `secret` is empty if none was written."""

    version: str
    secret: str
    issued_ms: int
    expires_ms: int
    text: JSON


def token_wish(at: ObjectId, spec: CredentialRequestSpec) -> TokenWish:
    """The token that a request asks for."""
    cluster = target_cluster(at, spec)
    given = spec.metadata
    account, secret = _pair(spec.service_account), _pair(spec.secret)
    life_ms = duration_ms(spec.duration) if spec.duration is not None else None
    seconds = None if life_ms is None else life_ms // 1_000
    labels = {**((given.labels if given else None) or {}), **request_labels(at)}
    annotations = (given.annotations if given else None) or {}
    target = "/".join(_pair(spec.target_cluster)) if spec.target_cluster is not None else ""
    return TokenWish(
        key=at.key,
        source=at.source if cluster is None else cluster_source(cluster),
        target=target,
        cluster=cluster,
        account=account,
        secret=secret,
        form=spec.type,
        seconds=seconds,
        labels=labels,
        annotations=annotations,
        version=digest(account, target, secret, spec.type, seconds, labels, annotations),
    )


def token_known(fields: JSON | None) -> TokenKnown:
    """What the fields of an observation say."""
    found = fields or {}
    issued, expires = time_ms(found.get("issuedAt")), time_ms(found.get("expirationTimestamp"))
    return TokenKnown(str(found.get("version", "")), str(found.get("secret", "")), issued, expires, found)


def renewal_ms(wish: TokenWish, known: TokenKnown) -> int:
    """The time at which a token must be written; 0 if it must be now."""
    if known.version != wish.version or known.expires_ms <= known.issued_ms:
        return 0
    life_ms = known.expires_ms - known.issued_ms
    share = int(digest(wish.key, known.issued_ms), 16) / _SHARES
    return known.issued_ms + min(int(life_ms * (RENEWED_AT + JITTER * share)), AGE_MS_MAX)


def observation_of(wish: TokenWish, issued_ms: int, expires_ms: int) -> JSON:
    """The observation after a token was written."""
    fields = {
        "ready": True,
        "serviceAccount": "/".join(wish.account),
        "targetCluster": wish.target,
        "secret": "/".join(wish.secret),
        "issuedAt": _time(issued_ms),
        "expirationTimestamp": _time(expires_ms),
        "version": wish.version,
    }
    return {name: value for name, value in fields.items() if value != ""}


def failure_of(known: TokenKnown, message: str, now_ms: int) -> JSON:
    """The observation after a failure. A token that is still valid stays in use."""
    return {**known.text, "ready": bool(known.secret) and now_ms < known.expires_ms, "message": message}


def time_ms(text: object) -> int:
    """A time of the Kubernetes API; 0 if it is not one."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return 0


def _pair(name: NamespacedName) -> tuple[str, str]:
    return name.namespace or DEFAULT_NAMESPACE, name.name


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"

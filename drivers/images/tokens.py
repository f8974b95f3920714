"""Tokens of downloads: each lets one DPU read one installation until it expires.

A token is part of a URL that a BMC gets, since BMCs have no other credentials for a download. It is signed with a key
that only the image store has. It is a secret: it is in no record, log line or metric.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

import msgspec

_MAC_BYTES = 24
_TOKEN_MAX = 2_000
"""Maximum number of characters of a token."""
_CONTEXT = b"dpuplane image token v1\0"


class Claims(NamedTuple):
    """The permissions of a token. `dpu` is the key of the DPU's object, `identity` that of its installation."""

    dpu: str
    identity: str
    expires_s: int


_decoder = msgspec.json.Decoder(tuple[str, str, int])


class Tokens:
    """Issues and checks tokens with a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, claims: Claims) -> str:
        """The token for these claims."""
        body = msgspec.json.encode(claims)
        return f"{_text(body)}.{_text(self._mac(body))}"

    def check(self, token: str, now_s: int) -> Claims | None:
        """The claims of a token; None if it is forged or has expired."""
        if len(token) > _TOKEN_MAX or not token.isascii():
            return None
        body_text, _, mac_text = token.partition(".")
        try:
            body, mac = _bytes(body_text), _bytes(mac_text)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        try:
            claims = Claims(*_decoder.decode(body))
        except msgspec.MsgspecError:
            return None
        return claims if now_s < claims.expires_s else None

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self._key, _CONTEXT + body, hashlib.sha256).digest()[:_MAC_BYTES]


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)

"""Tokens of downloads: only the store can make them, and each is for one installation and a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.images.tokens import Claims, Tokens

KEY = b"k" * 32
CLAIMS = Claims("local/DPU.provisioning.dpu.nvidia.com/dpf/worker-d1", "image/0123456789", 1_000)


@given(st.text(max_size=100), st.text(max_size=100), st.integers(0, 1 << 40))
def test_a_token_has_its_claims(dpu: str, identity: str, expires_s: int) -> None:
    try:
        token = Tokens(KEY).issue(Claims(dpu, identity, expires_s))
    except UnicodeEncodeError:
        return
    assert Tokens(KEY).check(token, expires_s - 1) == Claims(dpu, identity, expires_s)
    assert Tokens(KEY).check(token, expires_s) is None
    assert Tokens(b"x" * 32).check(token, 0) is None


@given(st.data())
def test_a_changed_token_is_refused(data: st.DataObject) -> None:
    token = Tokens(KEY).issue(CLAIMS)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_. %/").filter(lambda letter: letter != token[at]))
    changed = token[:at] + other + token[at + 1 :]
    found = Tokens(KEY).check(changed, 0)
    assert found in (None, CLAIMS)
    if found is not None:  # base64 has several spellings of its last letter; the claims are the same
        assert at in (len(token) - 1, token.index(".") - 1)


@pytest.mark.parametrize(
    "token", ["", ".", "a.b", "\u20ac.x", "A" * 100_000, "e30.e30", "..", "a" * 500 + "." + "b" * 500]
)
def test_anything_else_is_refused(token: str) -> None:
    assert Tokens(KEY).check(token, 0) is None

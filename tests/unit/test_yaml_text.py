"""YAML from users is bounded before it is parsed, and refused in sentences that do not quote its values."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli.changes.policies import read_policies
from deploy.cli.shared.errors import Refused
from deploy.settings import yaml_text
from deploy.settings.settings import BadSettings, load_settings
from deploy.settings.yaml_text import CHARACTERS_MAX, DEPTH_MAX, NODES_MAX, NotYaml, documents_of

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)
SECRET = "hunter2-Tr0ub4dor"


def test_nested_aliases_are_refused_by_their_expanded_size() -> None:
    assert len(BOMB) < 600
    with pytest.raises(NotYaml, match=f"line 6: the text must have at most {NODES_MAX} keys and values"):
        documents_of(BOMB)


def test_merged_aliases_are_refused_by_their_expanded_size() -> None:
    """A merge copies the pairs of each named mapping. Two merges of the level before double the pairs at each level."""
    levels = "".join(f"m{level}: &m{level} {{<<: [*m{level - 1}, *m{level - 1}]}}\n" for level in range(1, 40))
    with pytest.raises(NotYaml, match="aliases expanded"):
        documents_of("m0: &m0 {a: 1}\n" + levels)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [1, *a]", "line 1: an alias must name an anchor that is complete before it"),
        ("a: 1\nb: *nothing", "line 2: an alias must name an anchor"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), f"line 1: .* nested at most {DEPTH_MAX} deep"),
        ("x" * (CHARACTERS_MAX + 1), f"at most {CHARACTERS_MAX} characters"),
        ("[" + "1," * NODES_MAX + "]", f"at most {NODES_MAX} keys and values"),
        ("a: 1\n---\nwhen: !!timestamp 2026-13-45", "line 3: the value does not match its tag"),
        ("a: 1\nb: [", "line 2: "),
        ("a: \x00", "character 4 is not allowed in YAML"),
    ],
)
def test_invalid_yaml_is_refused_with_line_and_rule(text: str, said: str) -> None:
    with pytest.raises(NotYaml, match=said):
        documents_of(text)


def test_yaml_at_the_limits_of_depth_and_size_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = documents_of("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    assert str(deep) == "[" + "[" * DEPTH_MAX + "]" * DEPTH_MAX + "]"
    nodes = "a: &a [1, 2]\nb: *a"  # one mapping, two keys, and two lists of two items
    monkeypatch.setattr(yaml_text, "NODES_MAX", 9)
    assert documents_of(nodes) == [{"a": [1, 2], "b": [1, 2]}]
    monkeypatch.setattr(yaml_text, "NODES_MAX", 8)
    with pytest.raises(NotYaml, match="line 2"):
        documents_of(nodes)


def test_what_looks_like_a_date_is_a_text() -> None:
    assert documents_of("pciAddress: 0000-04-00\nrelease: 2026-11-26") == [
        {"pciAddress": "0000-04-00", "release": "2026-11-26"}
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"password: !{SECRET}",
        f"password: !x!{SECRET} 1",
        f"password: *{SECRET}",
        f"password: [ {SECRET}",
        f"a: 1\n  {SECRET}: 2",
        f"%{SECRET} 1\n",
        f"a: &{SECRET} 1\nb: &{SECRET} 2",
        f"password: !!int {SECRET}",
        f"password: !!timestamp {SECRET}",
        f"password: !!float {SECRET}",
        f"password: !!binary {SECRET}\u00e9",
        f"{{password: {SECRET}, ? [a]: 1}}",
        f"@{SECRET}",
        f'password: "{SECRET}\\q"',
    ],
)
def test_no_sentence_about_yaml_quotes_a_value(text: str) -> None:
    with pytest.raises(NotYaml) as caught:
        documents_of(text)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"data: d\nkafka_sasl_password: {SECRET}",
        f"data: d\nkafka_sasl_username: {{password: {SECRET}}}",
        f"data: d\nlisten: [{SECRET}]",
        f"data: d\ntraces: grpc://user:{SECRET}@collector:4317",
        f"data: d\ntls_key: |\n  -----BEGIN PRIVATE KEY-----\n  {SECRET}\n",
        f"data: d\nrole: |\n  all\n  {SECRET}\n",
        f"{SECRET}",
        f"- {SECRET}",
        f"data: d\npassword: '{SECRET}",
    ],
)
def test_no_sentence_about_settings_prints_a_password(text: str, tmp_path: Path) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text(text)
    with pytest.raises(BadSettings) as caught:
        load_settings({}, config, {})
    assert SECRET not in str(caught.value)


def test_a_private_key_applied_as_a_policy_is_not_printed() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    with pytest.raises(Refused) as caught:
        read_policies(pem, "key.pem")
    assert not any(line and line in caught.value.message for line in pem.splitlines())


def test_unbounded_settings_are_refused() -> None:
    with pytest.raises(BadSettings, match=f"at most {CHARACTERS_MAX} characters"):
        load_settings({"data": "d"}, Path("/dev/zero"), {})


@given(st.text(alphabet="[]{}&*!<>:-?,|#'\"% \nab1", max_size=200))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        documents_of(text)
    except NotYaml as error:
        assert str(error) and "\n" not in str(error)

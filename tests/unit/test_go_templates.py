"""Go text templates: what they render, what they refuse, and that none takes long or much memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources.go_templates.lexer import pieces
from projections.resources.go_templates.render import OUTPUT_MAX, Fault, rendered

DATA: dict[str, Any] = {
    "mtu": 9000,
    "ports": [{"name": "p0", "on": True}, {"name": "p1", "on": False}],
    "tags": {"b": 1, "a": "x y"},
    "script": "a\nb",
    "zero": 0,
    "ratio": 1.5,
    "none": None,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain {text}", "plain {text}"),
        ("MTU={{ .mtu }}", "MTU=9000"),
        ("{{.mtu}}{{ .ratio }}{{ true }}", "90001.5true"),
        ("{{ range .ports }}{{ .name }},{{ end }}", "p0,p1,"),
        ("{{ range $i, $p := .ports }}{{ $i }}={{ $p.name }} {{ end }}", "0=p0 1=p1 "),
        ("{{ range $name, $value := .tags }}{{ $name }}:{{ $value }};{{ end }}", "a:x y;b:1;"),
        ("{{ range .none }}x{{ else }}empty{{ end }}", "empty"),
        ("{{ range 3 }}{{ . }}{{ end }}", "012"),
        ("{{ range .ports }}{{ if .on }}{{ continue }}{{ end }}{{ .name }}{{ end }}", "p1"),
        ("{{ range .ports }}{{ break }}{{ end }}done", "done"),
        ("{{ if .zero }}a{{ else if eq .mtu 9000 }}b{{ else }}c{{ end }}", "b"),
        ("{{ with .tags }}{{ .a }}{{ $.mtu }}{{ end }}", "x y9000"),
        ("{{ with .none }}x{{ else }}y{{ end }}", "y"),
        ("{{ $x := 1 }}{{ range until 4 }}{{ $x = add $x . }}{{ end }}{{ $x }}", "7"),
        ("a {{- .mtu -}} b", "a9000b"),
        ("a\n{{- /* nothing */ -}}\n b", "ab"),
        ("{{/* nothing */}}x", "x"),
        ("{{ (index .ports 1).name }}{{ index .tags `b` }}", "p11"),
        ("{{ .ports | len | printf `%03d` }}", "002"),
        ("{{ printf \"%s-%q-%x-%.2f-%%\" .mtu .script 255 .ratio }}", '9000-"a\\nb"-ff-1.50-%'),
        ("{{ if and .zero (fail `never`) }}a{{ else }}b{{ end }}", "b"),
        ("{{ or .zero .script | indent 2 }}", "  a\n  b"),
        ("{{ .tags }} {{ .ports }}", "map[a:x y b:1] [map[name:p0 on:true] map[name:p1 on:false]]"),
        ("{{ .zero | default 7 }}{{ coalesce .none .zero `z` }}", "7z"),
        ("{{ div -7 2 }} {{ mod -7 2 }} {{ max 1 9 3 }}", "-3 -1 9"),
        ("{{ `a,b` | splitList `,` | join `+` }}{{ list 1 2 | toJson }}", "a+b[1,2]"),
        ("{{ if not (hasPrefix `p` .script) }}{{ upper `x` }}{{ end }}", "X"),
        ("{{ dict `k` .tags | toYaml }}", "k:\n  a: x y\n  b: 1"),
    ],
)  # fmt: skip
def test_a_template_renders(template: str, text: str) -> None:
    assert rendered(template, DATA) == text
    assert not isinstance(rendered(template, DATA), Fault)


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{{ .nope }}", "line 1: .nope has no value"),
        ("\n\n{{ .tags.c }}", "line 3: .c has no value"),
        ("{{ .mtu.x }}", "line 1: .x is asked of a value without fields"),
        ("{{ .none }}", "line 1: a value that is inserted is nil"),
        ("{{ if .mtu }}", "line 1: if has no end"),
        ("{{ end }}", "line 1: end without a beginning"),
        ("{{ break }}", "line 1: break outside of a range"),
        ("{{ .mtu", "line 1: an action has no end"),
        ("{{ \x01 }}", "line 1: unexpected '\\x01' in an action"),
        ("{{ .mtu .zero }}", "line 1: only a function takes arguments"),
        ("{{ exec `ls` }}", "line 1: function exec is not supported"),
        ("{{ $x }}", "line 1: variable $x is not declared"),
        ("{{ $x = 1 }}", "line 1: variable $x is not declared"),
        ("{{ template `x` }}", "line 1: template is not supported"),
        ("{{ define `x` }}{{ end }}", "line 1: define is not supported"),
        ("{{ index .ports 7 }}", "line 1: index: 7 is not in the list"),
        ("{{ upper 1 }}", "line 1: upper: does not take these arguments"),
        ("{{ div 1 0 }}", "line 1: div: does not take these arguments"),
        ("{{ fail `no` }}", "line 1: fail: no"),
        ("{{ lt 1 `a` }}", "line 1: lt: compares two numbers or two texts"),
        ("{{ else }}", "line 1: else without a beginning"),
        ("{{ mul 9223372036854775807 9223372036854775807 }}", "line 1: mul: the result has more than 64 bits"),
    ],
)
def test_a_fault_names_the_line(template: str, fault: str) -> None:
    found = rendered(template, DATA)
    assert isinstance(found, Fault)
    assert found == fault


@pytest.mark.parametrize(
    "template",
    [
        "{{ range until 7000 }}{{ range until 7000 }}x{{ end }}{{ end }}",
        "{{ range 7000000000 }}{{ end }}",
        "{{ $a := list 1 }}{{ range until 60 }}{{ $a = list $a $a }}{{ end }}{{ $a }}",
        "{{ `x` | repeat 99999999999 }}",
        "{{ $a := `x` }}{{ range until 60 }}{{ $a = print $a $a }}{{ end }}",
        "{{ range until 2000 }}{{ $x := repeat 400000 `x` }}{{ end }}",
        "{{ range until 2000 }}{{ repeat 400000 `x` }}{{ end }}",
        "{{ indent 99999 `x` | indent 99999 | indent 99999 | indent 999999 }}",
        "{{ replace `x` (repeat 9999 `y`) (repeat 9999 `x`) }}",
        "{{ printf `%9999999d` 1 }}",
        "{{ if true }}" * 500 + "{{ end }}" * 500,
        "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
        "{{ `" + "x" * 300_000 + "` }}",
    ],
)
def test_a_template_that_wants_too_much_is_refused(template: str) -> None:
    assert isinstance(rendered(template, DATA), Fault)


_ACTIONS = (
    '{{ }} if range end else .mtu .ports $x := = | ( ) index print until 1 "t" `r` . and with list x /* */ break ,'
)
_WORDS = st.sampled_from([*_ACTIONS.split(" "), " ", "\n", "{{- ", " -}}"])


@settings(max_examples=300)
@given(st.lists(_WORDS, max_size=40).map("".join))
def test_any_text_gives_a_text_or_a_fault(template: str) -> None:
    found = rendered(template, DATA)
    assert isinstance(found, str)
    assert len(found) <= OUTPUT_MAX


@given(st.text(st.characters(exclude_characters="{"), max_size=200))
def test_text_without_actions_stays_as_it_is(text: str) -> None:
    assert rendered(text, {}) == text
    assert [piece.text for piece in pieces(text)] == ([text] if text else [])


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=50), min_size=1))
def test_a_value_is_inserted_as_it_is(values: dict[str, str]) -> None:
    template = "".join(f"{{{{ .{name} }}}}" for name in values)
    assert rendered(template, values) == "".join(values.values())

"""Sentences of `dpuplane verify` that differ only in a name are printed as one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.cli.shared.sentence_groups import group_sentences

BEHIND = "of zone rack-1 holds epoch 1 version 5 digest ab, the log expects epoch 1 version 6 digest cd"


def test_sentences_that_differ_only_in_a_name_are_one_line() -> None:
    found = [f"dpu d{number} {BEHIND}" for number in range(8)]
    assert group_sentences([*found, "zones/3 at 7: r1 has state ab, the log cd"]) == [
        f"dpu d0 {BEHIND}; the same of 7 more: d1, d2, d3, d4, d5 and 2 more",
        "zones/3 at 7: r1 has state ab, the log cd",
    ]


def test_sentences_with_other_differences_stay_separate() -> None:
    apart = [f"dpu d1 {BEHIND}", f"dpu d2 {BEHIND.replace('rack-1', 'rack-2')}", f"node d1 {BEHIND}"]
    assert group_sentences(apart) == apart


@given(st.lists(st.tuples(st.sampled_from(["dpu", "node", "log"]), st.integers(0, 30), st.sampled_from("ab"))))
def test_every_sentence_is_in_exactly_one_group(drawn: list[tuple[str, int, str]]) -> None:
    sentences = [f"{kind} n{number} is {said}" for kind, number, said in drawn]
    lines = group_sentences(sentences)
    assert len(lines) == len({(kind, said) if kind != "log" else (kind, number, said) for kind, number, said in drawn})
    for sentence in sentences[:1]:
        assert lines[0].startswith(sentence)

"""Every input of the corpus, and every former finding, passes its target."""

from __future__ import annotations

import pytest

from tests.fuzz import corpus
from tests.fuzz.findings import FINDINGS
from tests.fuzz.target import check_refusal
from tests.fuzz.targets import TARGETS

BYTES_MAX = 300_000


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_breaks_no_property_and_has_accepted_and_refused_inputs(name: str) -> None:
    accepted = [TARGETS[name].run(data) for data in corpus.load(name)]
    assert any(accepted), "no input is accepted, so nothing after the first checks is tested"
    assert not all(accepted), "no input is refused"


@pytest.mark.parametrize(("name", "data"), [pytest.param(f.target, f.data, id=f.what) for f in FINDINGS])
def test_a_former_finding_breaks_no_property(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


def test_the_corpus_is_small_and_every_file_has_a_target() -> None:
    assert sum(path.stat().st_size for path in corpus.FOLDER.iterdir()) <= BYTES_MAX
    assert {path.stem for path in corpus.FOLDER.iterdir()} == {*TARGETS}


@pytest.mark.parametrize("refusal", ["", "two\nlines", "\x1b[31m", "x" * 9_999])
def test_a_refusal_that_is_not_one_printable_sentence_is_a_finding(refusal: str) -> None:
    with pytest.raises(AssertionError):
        check_refusal(refusal)

"""A failing run is shrunk to a short script, and the script always repeats the same run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventstore.errors import PermanentError
from eventstore.folding.fold import RecordMetadata
from eventstore.folding.ledger import Ledger, LedgerEntry
from schemas.events import Envelope
from tests.simulation.__main__ import main
from tests.simulation.plan import plan_of
from tests.simulation.run import run_script, simulate
from tests.simulation.script import Action, Script, read_script
from tests.simulation.shrink import Shrinker, kind_of, minimal

SEEDS, SECONDS = range(25, 51), 15.0


@contextmanager
def without_deduplication(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """During the context, the plane decides a repeated command again."""
    admit = Ledger.admit

    def forgetful(self: Ledger, envelope: Envelope, content: bytes, at: RecordMetadata) -> LedgerEntry | None:
        found = admit(self, envelope, content, at)
        return None if envelope.command_id in self.entries else found

    with monkeypatch.context() as patching:
        patching.setattr(Ledger, "admit", forgetful)
        yield


@pytest.mark.timeout(900)
def test_a_failing_seed_is_shrunk_to_a_short_failing_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.json"
    with without_deduplication(monkeypatch):
        plans = ((seed, plan_of(seed, faulty_s=SECONDS)) for seed in SEEDS)
        small = (seed for seed, plan in plans if plan.cluster is None and not plan.has_models)
        runs = (simulate(seed, faulty_s=SECONDS) for seed in small)
        result = next(run for run in runs if run.faults and len(run.actions) > 100)
        script = Shrinker(runs_max=300).shrink(result, SECONDS)
        assert script is not None
        assert len(script.actions) < 15
        script.write(path)
        assert main(["--script", str(path)]) == 1
        output = capsys.readouterr().out
        assert kind_of(script.fault) in output
        assert all(action.what in output for action in script.actions)
    assert {action.author.partition("-")[0] for action in script.actions} == {"client", "log"}, (
        "a command and its duplicate"
    )
    assert main(["--script", str(path)]) == 0, "the script passes without the bug"
    again = [run_script(read_script(path)).digest for _ in range(2)]
    assert again[0] == again[1]


def test_a_script_is_read_as_it_was_written(tmp_path: Path) -> None:
    actions = [
        Action(1.5, "nemesis", "crash", 3, description="p0"),
        Action(2.0, "log", "late", 7, key="zones/1 a", after_s=0.25),
    ]
    script = Script(seed=5, seconds=None, ends_s=9.0, reductions=("devices",), fault="I2: it happened", actions=actions)
    script.write(tmp_path / "a")
    assert read_script(tmp_path / "a") == script
    (tmp_path / "b").write_text("{")
    with pytest.raises(PermanentError, match="b: it cannot be read"):
        read_script(tmp_path / "b")


@pytest.mark.parametrize("needed", [set(), {0}, {99}, {3, 50}, {1, 2, 3, 97}])
def test_minimal_keeps_only_the_needed_items(needed: set[int]) -> None:
    assert minimal(range(100), lambda kept: needed <= set(kept)) == sorted(needed)


def test_faults_are_of_one_kind_by_their_invariant_or_their_words() -> None:
    assert kind_of("I2: 018bcfe5-6b7b took effect 2 times") == kind_of("I2: 018bcfe6 took effect 3 times")
    assert kind_of("I2: a") != kind_of("I3: a")
    assert kind_of("p0#3 died of LogMismatch: x") == kind_of("p1#7 died of LogMismatch: x")
    assert kind_of("p0#3 died of LogMismatch: x") != kind_of("p0#3 left tasks behind: []")

"""A fold version never changes its decisions: one log gives the same state and the same outcomes in every binary.

Binaries of several builds may fold a partition at once, and a binary of next year may fold it again. So each fold
version has a stored log with every event and every refusal of the fold, and the pinned results of each record: the
digest that replicas compare, and the outcome. `python -m tests.unit.test_fold_versions` adds new fold versions, and
never changes a log or a line of the golden file.
"""

from __future__ import annotations

import json
import re
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.composition.roles import folds_of
from eventstore.avro.codec import decode
from eventstore.errors import Undecodable
from eventstore.folding.fold import Fold, ItemOutcome, Outcome, RunFold, accepted_events
from eventstore.log import Record
from eventstore.reasons import Reason
from tests.support.fleet import PARTITIONS
from tests.support.pinned.folding import Folding
from tests.support.pinned.logs import made, read, write
from tests.support.pinned.sentences import module_file, modules, sentences

GOLDEN = Path(__file__).parent / "golden" / "folds.json"
FOLDS: dict[str, Fold[Any]] = {f"{fold.topic}.v{fold.version}": fold for fold in folds_of(PARTITIONS)}
WHAT_TO_DO = (
    "a log written under this version now has other results. Raise the version of the fold, and keep the rules of this"
    " version for the logs that have it (folds in deploy/composition/topics.py). If no plane ever folded with this"
    " version, remove it from tests/unit/golden/folds.json and run python -m tests.unit.test_fold_versions"
)
_STEP = 8
"""Number of pinned hex digits per record."""

NEVER_RETURNED = {
    "event: {} is not an event of the zones topic": "an event of another topic is quarantined before the fold",
    "event: {} is not an event of the fleet topic": "an event of another topic is quarantined before the fold",
    "event: {} is not an event of the cliques topic": "an event of another topic is quarantined before the fold",
    "event: {} is not an event of the installs topic": "an event of another topic is quarantined before the fold",
    "event: {} is not an event of the resources topic": "an event of another topic is quarantined before the fold",
    "name: {} would be more than the {} objects allowed": "it takes 200,000 objects",
    "names: {} would be more than the {} placed DPUs allowed": "it takes 200,000 DPUs",
    "dpus: {} would be more than the {} DPUs with a plan allowed": "it takes 200,000 DPUs",
    "names: {} would be more than the {} observations allowed": "it takes 400,000 observations",
    "zone: {} has {} DPUs, the limit": "it takes 100,000 records",
    "name: {} would be more than the {} policies allowed": "it takes 1,000 records",
    "clique: {} has {} nodes in its queue, the limit": "it takes 4,096 records",
    "clique: {} would be over the limit of {} cliques with a capacity and no node": "it takes 65,536 records",
    "executor: {} of step {} of install interface {} must be one of {}": "a process raises it at its start",
    "{}: {} must be 1 to 255 lower-case letters, digits, '.', '_' and '-', such as example.org": "an edge returns it",
    "certificate: {} must begin with {}": "an edge returns it",
    "certificate: role {} of {} must be one of {}": "an edge returns it",
    "certificate: name": "an edge returns it",
    "{}: {} must be NAMESPACE/HOST for role {}": "an edge returns it",
    "address: {} of {} is withheld: its agent stated it, and node {} holds it; it takes effect when that node gives it"
    " up, or when an operator states it": "the outcome of a command in fleet",
    "a pod of service {} with the interface {}": "the command line says it of an interface",
    "the bridge {}": "the command line says it of an interface",
    "the interface {}": "the command line says it of an interface",
}
"""Sentences of the folds' modules that occur in no stored log, each with the reason."""


def log_of(label: str) -> Path:
    return GOLDEN.parent / "folds" / f"{label}.gz"


def unfolded(label: str) -> Folding:
    topic = FOLDS[label].topic
    rules = {fold.version: fold for fold in FOLDS.values() if fold.topic == topic}
    return Folding(topic, rules, read(log_of(label)))


@cache
def singly(label: str) -> Folding:
    """The log of a fold version, folded record by record."""
    return unfolded(label).singly()


def pinned(folding: Folding) -> dict[str, str]:
    """The parts of a fold version that must never change: its log, and the results of each record."""
    steps = (
        hash_of(folding.digests[record.offset + 1], fields_of(folding.told.get(record.offset)))[:_STEP]
        for record in folding.records
    )
    return {
        "log": hash_of(list(map(tuple, folding.records))),
        "state": folding.digests[folding.folded.position].hex(),
        "states": hash_of([*folding.digests.items()]),
        "outcomes": hash_of([(offset, fields_of(outcome)) for offset, outcome in sorted(folding.told.items())]),
        "steps": "".join(steps),
    }


def fields_of(outcome: Outcome | None) -> object:
    """The present fields of an outcome, one by one, so that a field added later changes no pin."""
    if outcome is None:
        return None
    items = [(item.name, item.code, item.reason) for item in outcome.items]
    result = [outcome.result.get(name, none) for name, none in (("index", -1), ("queue_position", 0), ("hold", -1))]
    return outcome.code, outcome.reason, *result, items


def hash_of(*values: object) -> str:
    return blake2b(msgspec.msgpack.encode(values), digest_size=16).hexdigest()


def first_other(folding: Folding, steps: str) -> str:
    """The first record whose results differ from the pinned ones."""
    now = pinned(folding)["steps"]
    for number, record in enumerate(folding.records):
        place = slice(number * _STEP, (number + 1) * _STEP)
        if now[place] != steps[place]:
            told = folding.told.get(record.offset)
            return f"from offset {record.offset} on, a {type(event_of(record)).__name__} with the outcome {told}"
    return "in no record"


def event_of(record: Record) -> object:
    try:
        return decode(record.value)
    except Undecodable:
        return None


def golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    return found


def test_every_fold_version_is_pinned_and_no_pin_is_obsolete() -> None:
    assert golden().keys() == FOLDS.keys(), "run python -m tests.unit.test_fold_versions to pin new fold versions"


@pytest.mark.parametrize("label", FOLDS)
def test_a_fold_version_gives_the_pinned_results_for_its_log(label: str) -> None:
    now, then = pinned(singly(label)), golden()[label]
    assert now["log"] == then["log"], f"{label}: its log differs from the pinned one; a pinned log is never edited"
    assert now == then, f"{label}: {WHAT_TO_DO}. It differs {first_other(singly(label), then['steps'])}"


@pytest.mark.parametrize("label", FOLDS)
def test_folding_in_runs_gives_the_pinned_results(label: str) -> None:
    alone = singly(label)
    together = unfolded(label).in_runs()
    assert together.digests.items() <= alone.digests.items()
    assert together.told == alone.told
    assert bool(together.runs) == isinstance(FOLDS[label], RunFold)
    assert together.digests[together.folded.position].hex() == golden()[label]["state"]


@pytest.mark.parametrize("label", FOLDS)
def test_a_log_has_an_accepted_and_a_refused_record_of_every_event_type(label: str) -> None:
    folding = singly(label)
    told = {
        (type(event_of(r)).__name__, folding.told[r.offset].code) for r in folding.records if r.offset in folding.told
    }
    assert folding.folded.version == FOLDS[label].version, "a log of a later version must raise the version"
    refused = {name for name, code in told if code == "refused"}
    taken = {name for name, code in told if code != "refused"}
    assert taken >= accepted_events([FOLDS[label]])
    assert refused >= accepted_events([FOLDS[label]])


def test_the_logs_have_every_sentence_that_a_fold_returns() -> None:
    newest = {fold.topic: label for label, fold in sorted(FOLDS.items(), key=lambda item: item[1].version)}
    returned = {topic: returned_in(singly(label)) for topic, label in newest.items()}
    missing = set()
    for module, topics in modules(FOLDS.values()).items():
        for sentence in sentences(module):
            pattern = re.compile(re.escape(sentence).replace(re.escape("{}"), r"[^\n]*?"))
            if not any(pattern.search(returned[topic]) for topic in topics):
                missing.add(sentence)
    assert missing == NEVER_RETURNED.keys()


@pytest.mark.parametrize("label", FOLDS)
def test_every_refusal_has_a_code_and_an_invalid_field_is_named(label: str) -> None:
    told = singly(label).told.values()
    every: list[Outcome | ItemOutcome] = []
    for outcome in told:
        every += [outcome, *outcome.items]
    refusals = [each for each in every if each.code == "refused"]
    assert refusals
    for each in refusals:
        assert each.reason_code in Reason.__members__
        assert "field" in each.reason_fields or each.reason_code != Reason.INVALID_FIELD, each.reason


def test_the_logs_have_every_code_that_a_fold_returns() -> None:
    told = [outcome for label in FOLDS for outcome in singly(label).told.values()]
    had = {outcome.reason_code for outcome in told} | {item.reason_code for outcome in told for item in outcome.items}
    given = {
        name
        for module in modules(FOLDS.values())
        for name in re.findall(r"Reason\.([A-Z_]+)", module_file(module).read_text("utf-8"))
    }
    of_commands_in_fleet = {"HOLD_SUPERSEDED", "ADDRESS_IN_USE"}
    assert given - had == of_commands_in_fleet


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_a_log_for_the_next_version_can_be_generated(fold: Fold[Any]) -> None:
    assert {type(event_of(record)).__name__ for record in made(fold.topic)} >= accepted_events([fold])


def returned_in(folding: Folding) -> str:
    """All reasons that the fold returned, and its final rows, one per line."""
    reasons = [reason for told in folding.told.values() for reason in (told.reason, *(i.reason for i in told.items))]
    saved = folding.store.disk.partitions[folding.folded.partition]
    rows = [row.decode(errors="replace") for table in saved.rows.values() for row in table.values()]
    return "\n".join([*reasons, *rows])


def main() -> None:
    """Pin new fold versions."""
    pins = golden()
    added = [label for label in FOLDS if label not in pins]
    for label in added:
        write(log_of(label), made(FOLDS[label].topic))
        pins[label] = pinned(singly(label))
    GOLDEN.write_text(json.dumps(pins, indent=1) + "\n")
    print(f"{len(added)} added")


if __name__ == "__main__":
    main()

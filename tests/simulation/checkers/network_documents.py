"""Network documents on DPUs: each was wanted there, none is older than the last, and at rest each is the wanted one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from eventstore.log import RESOURCES, ZONES, Partition, partition_of
from projections.resources.derivation import Derivation
from projections.resources.kinds import DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE
from projections.resources.network_documents.needs import NetworkSides, Standing, standing
from projections.resources.network_documents.progress import NetworkProgress
from projections.resources.network_documents.staged import source_documents
from projections.resources.state import ResourcesState, object_id
from projections.zones.rows import DpuNetwork
from projections.zones.state import ZonesState
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.history import FinalNetwork, NetworkInstalled

Found = Iterator[str]


def check_versions(run: Evidence) -> Found:
    """I7: between two installations no DPU goes back to an older (epoch, version) of its document."""
    last: dict[tuple[str, int], NetworkInstalled] = {}
    for entry in run.history.of(NetworkInstalled):
        before = last.get((entry.device, entry.boot))
        if before and (entry.epoch, entry.version) < (before.epoch, before.version):
            yield f"{entry.device} went back from document {before.version} to {entry.version} at {entry.at_s:.3f} s"
        last[entry.device, entry.boot] = entry


def check_documents(run: Evidence) -> Found:
    """I8: a DPU has a document that was wanted there at its version, and that was in the log before the DPU got it."""
    wanted: dict[tuple[Partition, int, str], str] = {}
    for partition, steps in run.steps.items():
        if partition.topic == ZONES:
            for step in steps:
                for name, row in step.rows.get("dpu_networks", ()):
                    if row is not None and row.version == step.record.offset:
                        wanted[partition, row.version, name] = row.digest
    for entry in run.history.of(NetworkInstalled):
        partition = _partition(run, entry.zone)
        if wanted.get((partition, entry.version, entry.device)) != entry.digest.hex():
            yield f"{entry.device} had document {entry.version} of {entry.zone}, which was never wanted there"
        elif run.appended_s(partition, entry.version) > entry.at_s:
            yield f"{entry.device} had document {entry.version} at {entry.at_s:.3f} s, before it was in the log"


def check_applied(run: Evidence) -> Found:
    """I8, at rest: each DPU holds the document that the objects want, and the log says so."""
    held = {final.device: final for final in run.history.of(FinalNetwork)}
    for found in standings(run).values():
        for key, each in found.items():
            name = object_id(key).name
            if each.is_lacking:
                yield f"{name} is known in {each.zone} with {each.known}, and {each.document.digest} is wanted"
            elif each.known is not None:
                yield from _fault_of_device(name, each.known, held.get(name))


def check_shown(run: Evidence) -> Found:
    """I16, at rest: each chain and interface shows on how many DPUs it is ready."""
    for partition, found in standings(run).items():
        state: ResourcesState = run.folded[partition].state
        progress = NetworkProgress()
        parts: dict[str, None] = {}
        for key, each in found.items():
            parts |= progress.put(key, each)
        kinds = (DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE)
        parts |= {key: None for key in state.observed.rows if object_id(key).kind in kinds}
        for part in parts:
            seen, expected = state.observed.rows.get(part), progress.observation(part)
            if (seen.observation if seen is not None else "") != expected:
                yield f"{part} is shown as {seen and seen.observation}, and is {expected}"


def _fault_of_device(name: str, known: DpuNetwork, held: FinalNetwork | None) -> Found:
    """The faults of a DPU whose agent runs; the others get their documents when they are installed."""
    if held is None:
        return
    if (held.version, held.digest.hex()) != (known.version, known.digest):
        has = f"document {held.version}, digest {held.digest.hex()[:8]}"
        yield f"{name} has {has}, and {known.version}, {known.digest[:8]} is wanted in {held.zone}"
    elif not known.is_applied or known.refusal:
        yield f"{name} has document {held.version}, and its zone knows {known}"


def standings(run: Evidence) -> dict[Partition, dict[str, Standing]]:
    """How it stands with the document of each wanted DPU."""
    found = {}
    for partition, folded in run.folded.items():
        if partition.topic != RESOURCES:
            continue
        state: ResourcesState = folded.state
        derivation = Derivation()
        derivation.update(state, state.objects.rows)
        sources = {object_id(key).source for key in derivation.dpus.winners}
        documents = {each: source_documents(state, derivation, each) for each in sorted(sources)}
        sides = NetworkSides(state, derivation, documents, partial(_zone, run))
        found[partition] = {key: standing(sides, key) for key in derivation.dpus.winners}
    return found


def _zone(run: Evidence, zone: str) -> ZonesState:
    state: ZonesState = run.folded[_partition(run, zone)].state
    return state


def _partition(run: Evidence, zone: str) -> Partition:
    return Partition(ZONES, partition_of(zone.encode(), run.partition_count))

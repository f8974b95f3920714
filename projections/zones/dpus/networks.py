"""Network documents of DPUs: which one is wanted on each, and what relays report of it.

Documents are stated like wanted DPUs (`wanted`): a record counts only where the last one of its resources partition
ended. A report is about a version, and is passed over on a DPU whose wanted document has another version by now. So
copies and late records change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from eventstore.folding.fold import DONE, Decision, RecordMetadata, normalize, refusal, unchanged
from eventstore.reasons import Fault, Reason
from projections.field_checks import check_name, check_text, check_zone, quoted
from projections.resources.network_documents.document import MAX_DOCUMENT_BYTES, digest_of
from projections.zones.dpus.wanted import MAX_OBJECT_KEY
from projections.zones.rows import DpuNetwork, NetworkText, ResourcesMark
from projections.zones.state import ZonesChange, ZonesState, networks_mark
from schemas.events import MAX_ITEMS, NetworksReported, NetworksWanted

MAX_ENTRIES = 256
"""Maximum number of entries of one report."""
MAX_ORDINALS_BYTES = 1 << 17
"""Every ordinal is below eight times this number."""
MAX_UNRESOLVED_CHARACTERS = 4_000
"""Maximum number of characters of the names of unresolved interfaces in one entry."""
MAX_REFUSAL = 253


def want_networks(state: ZonesState, event: NetworksWanted, at: RecordMetadata) -> Decision:
    """Decide on the network documents that the objects of a resources partition want."""
    if fault := _fault(event):
        return refusal(fault)
    mark = state.networks_before(event.cause_partition)
    if event.from_offset != mark or event.to_offset < mark:
        reason = f"from_offset: {event.from_offset} to {event.to_offset} must begin at {mark}, where the last record of"
        reason = f"{reason} resources/{event.cause_partition} ended"
        return refusal(Fault(reason, Reason.OUT_OF_ORDER, mark=mark))
    digests = [digest_of(text) for text in event.documents]
    rows: dict[str, DpuNetwork | None] = {}
    texts: dict[str, NetworkText] = {}
    for name, of, index in zip(event.dpus, event.objects, event.indexes, strict=True):
        wanted, known, digest = state.wanted.rows.get(name), state.networks.rows.get(name), digests[index]
        if wanted is None or wanted.object != of or (known is not None and known.digest == digest):
            continue
        rows[name] = DpuNetwork(digest, at.offset, known.applied if known is not None else 0)
        if digest not in state.network_texts.rows:
            texts[digest] = NetworkText(event.documents[index])
    marks = {}
    if event.to_offset > mark:
        marks[networks_mark(event.cause_partition)] = ResourcesMark(event.to_offset)
    if not rows and not marks:
        return Decision(None, unchanged("dpus: their documents are known, or no object wants them here").outcome)
    return normalize(Decision(ZonesChange(networks=rows, network_texts=texts, resources_marks=marks), DONE))


def report_networks(state: ZonesState, event: NetworksReported) -> Decision:
    """Decide on a relay's report about network documents."""
    if fault := _report_fault(event):
        return refusal(fault)
    rows: dict[str, DpuNetwork | None] = {}
    names = state.dpu_index.zone(event.zone).names
    for version, applied, ordinals, unresolved, reason in _entries(event):
        for ordinal in _bits(ordinals):
            name = names.get(ordinal, "")
            row = rows.get(name) or state.networks.rows.get(name)
            if row is not None and row.version == version:
                rows[name] = replace(row, applied=applied, unresolved=unresolved, refusal=reason)
    changed = {name: row for name, row in rows.items() if row != state.networks.rows.get(name)}
    if not changed:
        return unchanged("ordinals: nothing about the wanted documents of these DPUs is new")
    return normalize(Decision(ZonesChange(networks=changed), DONE))


def _entries(event: NetworksReported) -> Iterator[tuple[int, int, bytes, tuple[str, ...], str]]:
    columns = (event.versions, event.applied, event.ordinals, event.unresolved, event.refusals)
    for version, applied, ordinals, unresolved, reason in zip(*columns, strict=True):
        yield version, applied, ordinals, tuple(unresolved.split(",")) if unresolved else (), reason


def _bits(ordinals: bytes) -> Iterator[int]:
    for place, byte in enumerate(ordinals):
        if byte:
            yield from (8 * place + bit for bit in range(8) if byte >> bit & 1)


def _fault(event: NetworksWanted) -> str | None:
    """The first fault of a record in one sentence."""
    count = len(event.dpus)
    if not 1 <= count <= MAX_ITEMS:
        return f"dpus: {count} items must be from 1 to {MAX_ITEMS}"
    if len(event.objects) != count or len(event.indexes) != count:
        return f"dpus: the other columns must have one value for each of the {count} DPUs"
    if event.cause_partition < 0:
        return f"cause_partition: {event.cause_partition} must be the number of a resources partition"
    for number, text in enumerate(event.documents):
        if (size := len(text.encode(errors="surrogatepass"))) > MAX_DOCUMENT_BYTES:
            return f"documents[{number}]: {size} bytes are more than the {MAX_DOCUMENT_BYTES} allowed"
        if not _is_object(text):
            return f"documents[{number}]: the text must be a JSON object"
    seen: set[str] = set()
    for number, name in enumerate(event.dpus):
        if name in seen:
            return f"dpus[{number}]: {quoted(name)} is given twice"
        seen.add(name)
        if not 0 <= event.indexes[number] < len(event.documents):
            return f"indexes[{number}]: {event.indexes[number]} is not the number of a document"
        fault = check_name(f"dpus[{number}]", name) or check_text(
            f"objects[{number}]", event.objects[number], MAX_OBJECT_KEY
        )
        if fault:
            return fault
    return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _report_fault(event: NetworksReported) -> str | None:
    count = len(event.versions)
    if not 1 <= count <= MAX_ENTRIES:
        return f"versions: {count} entries must be from 1 to {MAX_ENTRIES}"
    columns = (event.applied, event.ordinals, event.unresolved, event.refusals)
    if any(len(column) != count for column in columns):
        return f"versions: the other columns must have one value for each of the {count} entries"
    if fault := check_zone("zone", event.zone) or check_name("relay", event.relay):
        return fault
    for number, ordinals in enumerate(event.ordinals):
        if len(ordinals) > MAX_ORDINALS_BYTES:
            return f"ordinals[{number}]: {len(ordinals)} bytes are more than the {MAX_ORDINALS_BYTES} allowed"
        fault = check_text(f"unresolved[{number}]", event.unresolved[number], MAX_UNRESOLVED_CHARACTERS) or check_text(
            f"refusals[{number}]", event.refusals[number], MAX_REFUSAL
        )
        if fault:
            return fault
        if not 0 <= event.applied[number] <= event.versions[number]:
            return f"applied[{number}]: {event.applied[number]} must be from 0 to the wanted version"
    return None

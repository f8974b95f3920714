"""ExplainAccess: finds the node and the DPU; projections explain the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from commands.messages import to_message, to_port_ranges
from commands.queries.fold_reader import FoldReader
from commands.requests.validation import InvalidRequest
from commands.rpc.error_details import NotFound
from eventstore.log import FLEET, INSTALLS, ZONES
from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.resources.network_documents.progress import lack_of_network
from projections.rules.rule import Held
from projections.views.explanations import AddressView, ExplainQuery, VerdictView, explain, is_remembered
from projections.zones.dpus.views import zones_of_dpu
from projections.zones.state import ZonesState
from schemas.api import dpuplane_pb2 as pb


def zone_of_dpu(reader: FoldReader, dpu: str, zone: str) -> str:
    """The zone of a DPU. If `zone` is given, only this zone is searched.

    Raises NotFound if no zone has the DPU yet; a caller may wait for its registration. Raises InvalidRequest if several
    zones have a DPU of this name; a caller must then name the zone.
    """
    found = [known for known in zones_of_dpu(dpu, reader.all_zones()) if zone in ("", known)]
    if not found:
        reason = f"dpu: {quoted(dpu)} is not a DPU of {f'zone {quoted(zone)}' if zone else 'any zone'}"
        raise NotFound(Fault(reason, Reason.DPU_NOT_FOUND, dpu=dpu))
    if len(found) > 1:
        reason = f"dpu: {quoted(dpu)} exists in the zones {', '.join(found)}; name its zone (--zone)"
        raise InvalidRequest(Fault(reason, Reason.DPU_AMBIGUOUS, dpu=dpu, zones=",".join(found)))
    return found[0]


def explanation(
    reader: FoldReader, node: str, dpu: str, zone: str, held: Held | None, *, is_past: bool
) -> pb.Explanation:
    """Why the DPU allows or drops traffic of the node. `held` is the DPU's table, as reported by its relay. Raises
    NotFound."""
    state = reader.zones(reader.partition_number(zone))
    row = state.dpus.rows.get(dpu)
    if row is None:
        reason = f"dpu: {quoted(dpu)} is no longer a DPU of zone {quoted(zone)}"
        raise NotFound(Fault(reason, Reason.DPU_NOT_FOUND, dpu=dpu, zone=zone))
    rows = ((number, reader.zones(number).nodes.rows.get(node)) for number in reader.partition_numbers)
    places = [(found.created_ms, number, found) for number, found in rows if found is not None]
    _, number, known = max(places, key=lambda place: place[:2], default=(0, 0, None))
    if known is None and not is_remembered(node, reader.fleet, reader.all_zones()):
        raise unknown_node(node)
    about = ExplainQuery(node, known, number, dpu, row, held, reader.generation, is_past)
    view = explain(about, reader.fleet, reader.installs(zone))
    numbers = sorted({number, reader.partition_number(zone)})
    return pb.Explanation(
        node=node,
        dpu=dpu,
        zone=zone,
        addresses=map(_address, view.addresses),
        steps=[to_message(pb.ExplainedStep, step) for step in view.steps],
        missing_step=view.missing_step,
        reason=view.reason,
        verdicts=map(_verdict, view.verdicts),
        verdict=view.verdict,
        summary=view.summary,
        notes=[*view.notes, *_network_notes(state, dpu)],
        position=reader.token(ZONES, FLEET, INSTALLS, numbers=numbers),
    )


def _network_notes(state: ZonesState, dpu: str) -> Iterator[str]:
    """What the DPU lacks of its network document."""
    known = state.networks.rows.get(dpu)
    lack = lack_of_network(known, state.network_texts.rows[known.digest].text) if known is not None else ""
    if lack:
        yield f"network of {dpu}: {lack}; see 'dpuplane dpus network {dpu}'"


def unknown_node(name: str) -> NotFound:
    """The error of a query about a node that is in no zone."""
    return NotFound(Fault(f"name: {quoted(name)} is not a node of any zone", Reason.NODE_NOT_FOUND, node=name))


def _address(view: AddressView) -> pb.ExplainedAddress:
    return pb.ExplainedAddress(**{**view._asdict(), "ports": to_port_ranges(view.ports)})


def _verdict(view: VerdictView) -> pb.ExplainedVerdict:
    return pb.ExplainedVerdict(**{**view._asdict(), "ports": to_port_ranges(view.ports)})

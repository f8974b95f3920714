"""Requests about rollouts, as events. Their key is the source of the objects."""

from __future__ import annotations

from commands.requests.validation import EnvelopeFactory, InvalidRequest, NewEvent, require
from eventstore.log import RESOURCES
from projections.resources.rollouts.requests import PAUSE, RESUME, UNDO, request_fault
from projections.resources.state import LOCAL
from schemas.api import dpuplane_pb2 as pb
from schemas.events import RolloutRequested

_Verb = pb.RequestRolloutRequest.Verb
_VERBS = {_Verb.VERB_PAUSE: PAUSE, _Verb.VERB_RESUME: RESUME, _Verb.VERB_UNDO: UNDO}


def request_rollout(request: pb.RequestRolloutRequest, envelope: EnvelopeFactory) -> NewEvent:
    """Pause, resume or undo the rollout of a DPUSet, or of the DPUSets of a DPUDeployment."""
    verb, at, source = _VERBS.get(request.verb), request.name, request.source or LOCAL
    if verb is None:
        raise InvalidRequest(f"verb: {int(request.verb)} must be one of {', '.join(_VERBS.values())}")
    subject = "/".join((at.kind, at.namespace, at.name))
    event = RolloutRequested(envelope(subject), source, at.kind, at.namespace, at.name, verb, request.revision)
    require(request_fault(event))
    return NewEvent(RESOURCES, source, event)

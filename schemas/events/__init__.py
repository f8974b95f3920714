"""The events of the log, as folds see them: each event type is one Struct, declared in a module of this folder.

The Avro schema of an event type is derived from its Struct (eventstore/avro/released.py), with the fields in the same
order: a decoded record becomes a Struct by position. Events about many items are columnar: each field is a list, or
packed bytes. **A column of length 1 applies to every item**; an empty column means "not given". Times are milliseconds
since the epoch, offsets are log offsets.

An event records a request or an observation. The fold that reads it decides whether it takes effect.
"""

from __future__ import annotations

from schemas.envelope import Envelope as Envelope
from schemas.envelope import Event as Event
from schemas.events.cliques import *
from schemas.events.decisions import *
from schemas.events.dpus import *
from schemas.events.fleet import *
from schemas.events.installs import *
from schemas.events.log import *
from schemas.events.resources import *
from schemas.events.rollouts import *
from schemas.events.staging import *
from schemas.events.zones import *

EVENTS: tuple[type[Event], ...] = tuple(
    sorted(
        {found for found in globals().values() if isinstance(found, type) and issubclass(found, Event)} - {Event},
        key=lambda event: event.schema_id,
    )
)
"""Every event type of the modules above, by schema id."""

MAX_ITEMS = 1_000
"""Maximum number of items in one record."""

MAX_COMMAND_BYTES = 256 * 1024
"""Maximum encoded size of a record from outside the plane. Its changes must fit in one MembershipChanged."""

MAX_FORWARD_ITEMS = 2_000
"""Maximum number of items in a MembershipChanged: as many as in two records of MAX_ITEMS. Encoding or folding them
takes some milliseconds."""

MAX_FORWARD_BYTES = 512 * 1024
"""Maximum encoded size of a MembershipChanged."""

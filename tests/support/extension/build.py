"""The plane with a fold, an actor, an event type and backends that exist only for tests, each added by one line here.

`python -m tests.support.extension.build ...` is `dpuplane ...` of that plane. With `simulation` it is `python -m
tests.simulation` of it. The tables are changed before any other module imports them.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from schemas import events
from tests.support.extension.noted_event import NoteWritten


def extend() -> None:
    """Add a row to each table."""
    events.EVENTS = (*events.EVENTS, NoteWritten)
    from deploy.composition import topics
    from eventstore.topics import TopicSpec, TopicTable
    from tests.support.extension.notes import NOTES, NotesFold, NoteWriter

    readers, writers = frozenset({"api", "decisions", topics.READER}), frozenset({"api"})
    row = TopicSpec(
        name=NOTES, is_keyed=False, is_deciding=True, folds=(lambda _: NotesFold(),), readers=readers, writers=writers
    )
    topics.TOPICS = TopicTable((*topics.TOPICS, row))
    from deploy.composition import roles

    api = roles.ROLES["api"]
    roles.ROLES = {**roles.ROLES, "api": replace(api, actors={**api.actors, "notes": NoteWriter})}
    from deploy.composition import bmc_backends, device_backends
    from projections.zones.dpus import install_interfaces
    from tests.support.extension import lab

    install_interfaces.INTERFACES = {**install_interfaces.INTERFACES, lab.LAB: lab.INTERFACE}
    bmc_backends.BMC_BACKENDS = {**bmc_backends.BMC_BACKENDS, lab.LAB: lab.bmc_backend}
    device_backends.DEVICE_BACKENDS = {**device_backends.DEVICE_BACKENDS, lab.LAB: lab.device_backend}


if __name__ == "__main__":
    extend()
    if sys.argv[1] == "simulation":
        from tests.simulation import world
        from tests.simulation.__main__ import main as simulate
        from tests.support.extension.lab import LAB

        world.BMC_SCHEME = LAB
        sys.exit(simulate(sys.argv[2:]))
    from deploy.cli import main

    main()

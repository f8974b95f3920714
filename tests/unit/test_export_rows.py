"""Events as rows of an exported table."""

from __future__ import annotations

import pytest

from deploy.operations.export.events import EventFilter
from deploy.operations.export.rows import rows
from eventstore.avro.codec import encode
from eventstore.log import FLEET_0, Record
from schemas.events import (
    AGENT_ADDRESS4,
    AGENT_JOINED,
    INFERRED,
    LEFT,
    MAX_STATE,
    PRESENT,
    SUPERSEDED,
)
from tests.support.fleet import Item, membership


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (PRESENT, "present"),
        (LEFT, "left"),
        (INFERRED, "inferred"),
        (SUPERSEDED, "superseded"),
        (SUPERSEDED + AGENT_JOINED, "present"),
        (SUPERSEDED + AGENT_ADDRESS4, "present"),
        (MAX_STATE, "present"),
        (MAX_STATE + 1, None),
    ],
)
def test_the_row_of_a_node_names_its_state_whichever_fields_its_agent_set(state: int, name: str | None) -> None:
    record = Record(0, 1, b"", encode(membership(0, 0, 1, [Item("n", state=state)])))
    (row,) = rows(FLEET_0, [record], EventFilter(), explode=True)
    assert (row.node, row.state) == ("n", name)

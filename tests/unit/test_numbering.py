"""The DPUs of a link keep their numbers through repeated Hellos and through changes of their ordinals in the log."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from drivers.relays.numbering import Numbering
from drivers.wire.protocol import MAX_LINK_DPUS, ProtocolError


def test_a_dpu_named_again_keeps_its_number() -> None:
    numbering = Numbering()
    assert numbering.add(["b", "a"]) == 0b011
    assert numbering.add(["c", "b"]) == 0b101
    assert numbering.names_of(0b111) == ["b", "a", "c"]
    assert numbering.is_all(0b111)


def test_ordinals_follow_the_log_and_omit_dpus_without_one() -> None:
    numbering = Numbering()
    everybody = numbering.add(["a", "b", "c"])
    numbering.set_ordinal(0, 7)
    numbering.set_ordinal(2, 5)
    assert numbering.bitmap_of(everybody) == BitMap([5, 7])
    assert numbering.renumbered(lambda dpus: [{"a": 7, "c": 6}.get(dpu) for dpu in dpus]) == ["c"]
    numbering.set_ordinal(0, None)
    assert numbering.bitmap_of(everybody) == BitMap([5])


def test_a_hello_with_too_many_dpus_is_refused_whole() -> None:
    numbering = Numbering()
    numbering.add([f"d{number}" for number in range(MAX_LINK_DPUS - 1)])
    with pytest.raises(ProtocolError, match="more than the 10000 DPUs allowed"):
        numbering.add(["x", "y"])
    assert numbering.add(["x"]) == 1 << MAX_LINK_DPUS - 1

"""Network documents in the history of a zones partition."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.support.zones import DeliveredZones


def malformed_networks(log: DeliveredZones) -> None:
    """Records about network documents with each fault."""
    wrong: tuple[dict[str, Any], ...] = (
        {"dpus": []},
        {"objects": []},
        {"cause_partition": -1},
        {"documents": ["{" + " " * (1 << 17)]},
        {"documents": ["[]"]},
        {"documents": ["{"]},
        {"dpus": ["n0", "n0"], "objects": ["o", "o"], "indexes": [0, 0]},
        {"indexes": [1]},
        {"dpus": ["no dpu"]},
        {"objects": ["o\n"]},
        {"from_offset": 7},
        {"from_offset": 0, "to_offset": -1},
    )
    for fields in wrong:
        log.append(replace(log.wanted_networks({"n0": "{}"}), **fields))
    log.want("n0", zone="n")
    for fields in (
        {"versions": []},
        {"applied": []},
        {"applied": [2]},
        {"ordinals": [bytes((1 << 17) + 1)]},
        {"unresolved": ["p\n"]},
        {"refusals": ["r\n"]},
    ):
        log.report_network("n0", zone="n", **fields)


def shared_networks(log: DeliveredZones) -> None:
    """Documents that are shared, replaced, reported and dropped."""
    log.want("n1", "n2", zone="n")
    log.want_networks({"n0": "{}", "n1": "{}", "n2": '{"a":1}', "absent": "{}"})
    log.want_networks({"n0": "{}"}, from_offset=log.state.networks_before(0), to_offset=log.state.networks_before(0))
    log.want_networks({"n0": "{}"}, objects=["other/DPU.p/dpf/n0"])
    log.report_network("n0", "n1", "n2", zone="n", unresolved=["dpf/a,dpf/b"])
    log.report_network("n0", "n1", zone="n")
    log.report_network("n0", "n1", zone="n")
    log.report_network("n2", zone="n", applied=[0], refusals=["the device failed"])
    log.want_networks({"n0": '{"b":1}', "n1": '{"b":1}'})
    log.want_networks({"n2": "{}"})
    log.want("n1", zone="")

"""Effects on hosts in both generations of specs, names of maintenances, and the order in which hosts are admitted."""

from __future__ import annotations

from typing import Any

import pytest

from projections.resources.host_effects import (
    NAME_MAX,
    Effect,
    Maintenance,
    admitted,
    effect_of,
    joined,
    left,
    maintenance_id,
    name_begin,
    new_maintenance,
    read_maintenance,
)

_DRAIN = Effect()


@pytest.mark.parametrize(
    ("spec", "effect"),
    [
        (None, Effect("drain")),
        ({}, Effect("drain")),
        ({"drain": {"automaticNodeReboot": True}}, Effect("drain", {"automaticNodeReboot": True})),
        ({"drain": {}}, Effect("drain", {})),
        ({"customLabel": {}, "customAction": "", "noEffect": False, "drain": True}, Effect("drain")),
        ({"noEffect": False, "hold": True, "force": True}, Effect("hold", True, force=True)),
        ({"customLabel": {"a": "b"}, "applyOnLabelChange": True}, Effect("customLabel", {"a": "b"}, False, True)),
        (
            {"noEffect": True, "nodeMaintenanceAdditionalRequestors": ["x", 1]},
            Effect("noEffect", True, False, False, ("x",)),
        ),
    ],
)
def test_the_effect_of_a_spec(spec: dict[str, Any] | None, effect: Effect) -> None:
    assert effect_of(spec) == effect
    assert effect_of(effect.as_json())[:3] == effect[:3]


def test_the_name_of_a_maintenance_is_its_host_with_the_effect_and_never_too_long() -> None:
    assert maintenance_id("east", "dpf", "h1", "customLabel").name == "h1-customlabel"
    longest = [maintenance_id("east", "dpf", "h" * 100 + end, "hold").name for end in "ab"]
    assert all(len(name) <= NAME_MAX for name in longest) and len({*longest}) == 2


def maintenance(host: str, created_ms: int, *requestors: str, effect: Effect = _DRAIN) -> Maintenance:
    at = maintenance_id("east", "dpf", host, effect.kind)
    return new_maintenance(at, host, effect, "")._replace(created_ms=created_ms, requestors=requestors)


def test_the_first_hosts_are_admitted_and_a_host_counts_once() -> None:
    first, second, third = (maintenance(host, number, "dpu") for number, host in enumerate(("h1", "h2", "h3")))
    every = [first, second, third]
    assert admitted(every, 2) == {first.at.key, second.at.key}
    is_lifting = second._replace(requestors=())
    assert third.at.key not in admitted([first, is_lifting, third], 2), "a host is free when its maintenance is gone"
    of_first = maintenance("h1", 1, "dpu", effect=Effect("taint", {"key": "a"}))
    assert admitted([first, of_first, third], 2) == {first.at.key, of_first.at.key, third.at.key}
    assert third.at.key in admitted([first, second, third._replace(effect=Effect(force=True))], 2)
    without_effect = maintenance("h0", -1, "dpu", effect=Effect("noEffect"))
    assert second.at.key in admitted([without_effect, *every], 2)


def test_requestors_join_and_leave() -> None:
    found = joined(maintenance("h1", 0, "a"), "b")
    assert found.requestors == ("a", "b") and not found.is_lifting
    assert left(found, ["a", "c"]).requestors == ("b",) and left(found, ["a", "b"]).is_lifting


@pytest.mark.parametrize(("value", "is_held"), [("true", True), ("", True), ("False", False), (None, False)])
def test_a_hold_lasts_until_its_annotation_is_gone_or_false(value: str | None, is_held: bool) -> None:
    found = new_maintenance(maintenance_id("east", "dpf", "h1", "hold"), "h1", Effect("hold"), "a")
    assert found.is_held
    key = next(iter(found.annotations))
    assert found._replace(annotations={} if value is None else {key: value}).is_held is is_held


@pytest.mark.parametrize("spec", [{}, {"requestor": "x", "nodeEffect": []}, {"requestor": [1], "dpuNodeName": 1}])
def test_a_maintenance_that_users_have_spoilt_is_read(spec: dict[str, Any]) -> None:
    metadata = {"uid": "u", "version": "1", "labels": {}, "annotations": {}, "created_ms": 1}
    found = read_maintenance(maintenance_id("east", "dpf", "h1", "hold"), metadata, spec)
    assert found.requestors == () and found.effect == Effect()


@pytest.mark.parametrize("host", ["h1", "Worker-1.example.org", "h" * 48, "h" * 60, "h" * 253])
def test_the_names_of_all_maintenances_of_a_host_begin_alike(host: str) -> None:
    for kind in ("drain", "customLabel"):
        assert maintenance_id("east", "dpf", host, kind).name.startswith(name_begin(host))

"""A derivation that follows changes equals the derivation from the whole state, whatever the order of arrival."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.resources import kinds
from projections.resources.kinds import DPU
from projections.resources.state import Resource
from schemas.resources.dpf.names import DPU_NODE_NAME, OWNING_DEPLOYMENT
from tests.support.derivations import SOURCE, Derived, content, full, key, row

NAMES = ("a", "b", "c")
VALUES = st.sampled_from(["1", "2"])
TIMES = st.sampled_from([1, 2, 3])
SELECTORS = st.one_of(
    st.none(),
    st.fixed_dictionaries({"matchLabels": st.dictionaries(st.just("x"), VALUES)}),
    st.just({"matchExpressions": [{"key": "x", "operator": "Exists"}]}),
    st.just({"matchExpressions": [{"key": "x", "operator": "Is"}]}),
)
FEATURE = "feature.node.kubernetes.io/dpu-0-pci-address"


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _rows(specs: st.SearchStrategy[Any], **labels: st.SearchStrategy[str | None]) -> st.SearchStrategy[Resource]:
    """Rows with these specs and labels, some of them being deleted."""
    return st.builds(
        lambda spec, found, created_ms, is_deleted: row(
            spec, labels=_without_none(found), created_ms=created_ms, deleted_ms=9 if is_deleted else 0
        ),
        specs,
        st.fixed_dictionaries(dict(labels)),
        TIMES,
        st.integers(0, 5).map(lambda number: number == 0),
    )


def _named(name: str, strategy: st.SearchStrategy[str | None]) -> dict[str, st.SearchStrategy[str | None]]:
    return {name: strategy}


X = _named("x", st.one_of(st.none(), VALUES))
UNREADABLE = st.just({"dpus": 1, "dpuTemplate": 1, "serialNumber": 1, "services": 1})
NODES = _rows(st.just({}), **X, **_named(FEATURE, st.one_of(st.none(), VALUES)))
HOSTS = _rows(
    st.one_of(st.fixed_dictionaries({"dpus": st.lists(st.sampled_from([{"name": n} for n in NAMES]))}), UNREADABLE), **X
)
HOST_LABEL = _named(DPU_NODE_NAME, st.one_of(st.none(), st.sampled_from(NAMES)))
DEVICES = _rows(st.one_of(st.fixed_dictionaries({"serialNumber": VALUES}), UNREADABLE), **X, **HOST_LABEL)
SETS = _rows(
    st.one_of(
        st.builds(
            lambda image, hosts, older, devices: _without_none(
                {
                    "dpuNodeSelector": hosts,
                    "nodeSelector": None if hosts else older,
                    "dpuDeviceSelector": devices,
                    "dpuTemplate": {"spec": {"bfb": {"name": image}, "dpuFlavorTemplate": "a"}},
                }
            ),
            VALUES,
            SELECTORS,
            SELECTORS,
            SELECTORS,
        ),
        UNREADABLE,
    ),
    **_named(OWNING_DEPLOYMENT, st.sampled_from([None, None, "dpf_a"])),
)
DEPLOYMENTS = _rows(
    st.one_of(
        st.builds(
            lambda image, suffix, selector: {
                "dpus": {
                    "bfb": image,
                    "flavor": "a",
                    "dpuSets": [_without_none({"nameSuffix": suffix, "dpuNodeSelector": selector})],
                },
                "services": {"s": {"serviceTemplate": "a", "serviceConfiguration": "a"}},
            },
            st.sampled_from(NAMES),
            st.sampled_from(["a", "b-a"]),
            SELECTORS,
        ),
        UNREADABLE,
    )
)
PARTS = _rows(
    st.fixed_dictionaries(
        {
            "deploymentServiceName": st.sampled_from(["s", "s", "s", "t"]),
            "helmChart": st.fixed_dictionaries({"values": st.fixed_dictionaries({"v": VALUES})}),
        }
    )
)
PLAIN = _rows(st.just({}))
STRATEGIES = {
    kinds.NODE: NODES,
    kinds.DPU_NODE: HOSTS,
    kinds.DPU_DEVICE: DEVICES,
    kinds.DPU_SET: SETS,
    kinds.DPU_DEPLOYMENT: DEPLOYMENTS,
    kinds.DPU_SERVICE_TEMPLATE: PARTS,
    kinds.DPU_SERVICE_CONFIGURATION: PARTS,
    kinds.BFB: PLAIN,
    kinds.DPU_FLAVOR: PLAIN,
    kinds.DPU_FLAVOR_TEMPLATE: _rows(st.fixed_dictionaries({"template": VALUES})),
}
SET_NAMES = st.sampled_from([*NAMES, "a-a", "a-b-a"])


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Resource | None]:
    """New rows of one to three objects; None removes one."""
    found: dict[str, Resource | None] = {}
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(sorted(STRATEGIES)))
        name = draw(SET_NAMES if kind in (kinds.DPU_SET, kinds.DPU_DEPLOYMENT) else st.sampled_from(NAMES))
        found[key(kind, name)] = draw(st.one_of(st.none(), STRATEGIES[kind], STRATEGIES[kind], STRATEGIES[kind]))
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(changes(), min_size=1, max_size=25), st.randoms(use_true_random=False))
def test_following_changes_equals_deriving_everything_in_any_order(steps: list[dict[str, Any]], rng: Any) -> None:
    derived = Derived()
    for step in steps:
        before = {each.at.key: each for each in derived.derivation.wanted()}
        changed = derived.apply(step)
        after = {each.at.key: each for each in derived.derivation.wanted()}
        assert {each for each in (*before, *after) if before.get(each) != after.get(each)} == set(changed)
    expected = content(derived.derivation)
    assert _twins(derived) == _twins_by_comparison(derived)
    keys = [*derived.state.objects.rows]
    rng.shuffle(keys)
    assert content(full(derived.state, keys)) == expected
    one_by_one = full(derived.state, [])
    for each in keys:
        one_by_one.update(derived.state, [each])
    assert content(one_by_one) == expected


def _twins(derived: Derived) -> dict[str, list[str]]:
    hosts = derived.derivation.selection.hosts
    return {each: sorted(hosts.twins(each)) for each in hosts.devices}


def _twins_by_comparison(derived: Derived) -> dict[str, list[str]]:
    """The devices with the serial number of each device, by comparing it with every other one."""
    serials = {name: each.spec.serial_number for name, each in derived.derivation.selection.hosts.devices.items()}
    return {
        name: sorted(each for each, other in serials.items() if serial and other == serial and each != name)
        for name, serial in serials.items()
    }


def test_the_sets_of_a_deployment_that_was_made_anew_have_its_age() -> None:
    spec = {"dpus": {"bfb": "a", "flavor": "a", "dpuSets": [{"nameSuffix": "all"}]}}
    derived = Derived({key(kinds.DPU_DEPLOYMENT, "a"): row(spec, created_ms=1)})
    derived.apply({key(kinds.DPU_DEPLOYMENT, "a"): row(spec, created_ms=2)})
    assert content(full(derived.state)) == content(derived.derivation)


@settings(max_examples=100, deadline=None)
@given(st.lists(changes(), min_size=5, max_size=25))
def test_a_device_is_wanted_by_one_set_at_most(steps: list[dict[str, Any]]) -> None:
    derived = Derived()
    for step in steps:
        derived.apply(step)
    selection = derived.derivation.selection
    owned: dict[str, list[str]] = {}
    for name in derived.derivation.sets:
        owned[name] = [each for each in selection.members(name) if selection.winner(each) == name]
    together = [each for found in owned.values() for each in found]
    assert len(together) == len(set(together))
    ages = {name: found.age for name, found in derived.derivation.sets.items()}
    for device, found in selection.selected_by.items():
        assert found[0] == min((name for name in ages if device in selection.members(name)), key=ages.__getitem__)
    assert len({each.at.key for each in derived.derivation.wanted() if each.at.kind == DPU}) <= len(together)


@settings(max_examples=100, deadline=None)
@given(st.lists(changes(), min_size=5, max_size=25))
def test_indexes_of_wanted_objects_have_what_a_search_finds(steps: list[dict[str, Any]]) -> None:
    derived = Derived()
    for step in steps:
        derived.apply(step)
    derivation = derived.derivation
    for claims in (derivation.children, derivation.dpus, derivation.in_clusters.claims):
        wanted = [*claims.winners.values()]
        for kind in {each.at.kind for each in wanted}:
            of_kind = {each.at.key for each in wanted if each.at.kind == kind}
            assert {*claims.of_kind(SOURCE, kind)} | {*claims.of_kind("", kind)} >= of_kind
            assert {*claims.of_kind("", kind)} == of_kind
        assert {*claims.of_kind("", "")} == {*claims.winners}
        assert not claims.of_kind("absent", "")
        for owner in {each.owner for each in wanted}:
            assert {*claims.wanted_by(owner)} == {each.at.key for each in wanted if each.owner == owner}
        owners = {*claims.holders.values(), *(owner for _, owner, _ in claims.contested())}
        lost = {(key, owner, holder) for owner in owners for key, holder in claims.lost(owner).items()}
        assert {*claims.contested()} == lost
    selection = derivation.selection
    for name in derivation.sets:
        others = [each for each in selection.members(name) if selection.winner(each) != name]
        expected = {winner: each for each in reversed(others) if (winner := selection.winner(each))}
        assert selection.lost_to(name) == expected

"""How a DPUSet is updated: DPF's strategy, and what annotations of the DPUSet or its DPUDeployment add to it.

DPF's schema has no field for waves, so they are annotations: the manifests stay valid for DPF. Without annotations the
strategy is DPF's: one wave, and no failure budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from projections.field_checks import quoted
from projections.resources.deployments.specs import STRATEGY, DPUDeploymentSpec
from projections.resources.rollouts.requests import PAUSED_ANNOTATION
from projections.resources.rollouts.rows import ON_DELETE, ROLLING_UPDATE
from projections.resources.specs import DPUSetSpec, DPUSetStrategy, read
from projections.resources.state import Resource
from projections.sizes import MAX_BAKE_MS, MAX_WAVES, Size, read_size

PREFIX = "dpuplane.io/rollout-"
WAVES = f"{PREFIX}waves"
FAILURE_DOMAIN = f"{PREFIX}failure-domain"
BAKE_TIME = f"{PREFIX}bake-time"
FAILURE_BUDGET = f"{PREFIX}failure-budget"
ANNOTATIONS = (WAVES, FAILURE_DOMAIN, BAKE_TIME, FAILURE_BUDGET, PAUSED_ANNOTATION)

_ALL = "100%"
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?")
_LABEL = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class Strategy(NamedTuple):
    """How a DPUSet is updated. `waves` are the shares of the set that have the new image after each wave; the last one
    is the whole set. `failure_domain` is the label of hosts whose values are updated one after the other."""

    type: str = ON_DELETE
    max_unavailable: str = "1"
    waves: tuple[str, ...] = (_ALL,)
    failure_domain: str = ""
    bake_ms: int = 0
    failure_budget: str = ""
    is_paused: bool = False

    def wave_ends(self, total: int) -> list[int]:
        """The number of DPUs, in order, that belong to each wave or an earlier one."""
        ends, end = [], 0
        for text in self.waves:
            size = read_size(text)
            assert size is not None, "a strategy has valid waves"
            end = min(total, max(end, size.of(total)))
            ends.append(end)
        return ends


def strategy_of(spec: DPUSetSpec, annotations: Mapping[str, str]) -> Strategy | str:
    """The strategy of a DPUSet, or the fault of its first annotation with one."""
    given = spec.strategy
    is_rolling = given is not None and given.type == ROLLING_UPDATE
    unavailable = given.rolling_update.max_unavailable if given is not None and given.rolling_update else None
    strategy = Strategy(ROLLING_UPDATE if is_rolling else ON_DELETE)
    if unavailable is not None:
        strategy = strategy._replace(max_unavailable=str(unavailable))
        if read_size(strategy.max_unavailable) is None:
            fault = f"{quoted(strategy.max_unavailable)} must be a number or percentage"
            return f"strategy.rollingUpdate.maxUnavailable: {fault}"
    for name in annotations:
        if fault := _unknown(name):
            return f"annotation {name}: {fault}"
    for name, add in _READERS:
        if name in annotations:
            found = add(strategy, annotations[name].strip())
            if isinstance(found, str):
                return f"annotation {name}: {quoted(annotations[name])} {found}"
            strategy = found
    return strategy


def stated_strategy(row: Resource, *, is_deployment: bool) -> Strategy | str:
    """The strategy of a DPUSet as it is stated, or of the DPUSets of a DPUDeployment; or why it cannot be used."""
    annotations = rollout_annotations(row.annotations)
    if not is_deployment:
        stated = read(DPUSetSpec, row)
        return stated if isinstance(stated, str) else strategy_of(stated, annotations)
    wanted = read(DPUDeploymentSpec, row)
    if isinstance(wanted, str):
        return wanted
    try:
        given = msgspec.convert(wanted.dpus.dpu_set_strategy or STRATEGY, DPUSetStrategy)
    except msgspec.ValidationError as error:
        return f"dpus.dpuSetStrategy: {error}"
    return strategy_of(DPUSetSpec(strategy=given), annotations)


def annotation_faults(annotations: Mapping[str, str]) -> Iterator[str]:
    """The faults of all annotations of a DPUSet or DPUDeployment, each with its path in the object."""
    readers = dict(_READERS)
    for name, text in sorted(annotations.items()):
        path = f'metadata.annotations["{name}"]'
        if fault := _unknown(name):
            yield f"{path}: {fault}"
        elif name in readers and isinstance(found := readers[name](Strategy(), text.strip()), str):
            yield f"{path}: {quoted(text)} {found}"


def rollout_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a DPUDeployment that its DPUSets get."""
    return {name: value for name, value in sorted(annotations.items()) if name.startswith(PREFIX)}


def _unknown(name: str) -> str:
    """The fault of an annotation of rollouts that does not exist; empty for any other annotation."""
    is_unknown = name.startswith(PREFIX) and name not in ANNOTATIONS
    return f"is unknown; the annotations are {', '.join(ANNOTATIONS)}" if is_unknown else ""


def _with_waves(strategy: Strategy, text: str) -> Strategy | str:
    """With a failure budget of 0, unless another annotation gives one: a wave exists to stop at the first failure."""
    sizes = [read_size(each.strip()) for each in text.split(",")]
    if any(each is None or each.number < 1 for each in sizes):
        return "must be numbers of DPUs or percentages, such as 1,1%,10%,100%"
    if _decreases([each for each in sizes if each is not None]):
        return "must not decrease: each wave is the share of the DPUSet that has the new image after it"
    waves = [each.strip() for each in text.split(",")]
    waves += [_ALL] if waves[-1] != _ALL else []
    if len(waves) > MAX_WAVES:
        return f"must be at most {MAX_WAVES} waves"
    return strategy._replace(waves=tuple(waves), failure_budget="0")


def _decreases(sizes: list[Size]) -> bool:
    for kind in (True, False):
        numbers = [each.number for each in sizes if each.is_percentage == kind]
        if numbers != sorted(numbers):
            return True
    return False


def _with_domain(strategy: Strategy, text: str) -> Strategy | str:
    if _LABEL.fullmatch(text) is None:
        return "must be the key of a label of hosts, such as topology.kubernetes.io/rack"
    return strategy._replace(failure_domain=text)


def _with_bake_time(strategy: Strategy, text: str) -> Strategy | str:
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        return "must be a duration such as 90s, 10m or 1h30m"
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    bake_ms = (hours * 3600 + minutes * 60 + seconds) * 1000
    if bake_ms > MAX_BAKE_MS:
        return f"must be at most {MAX_BAKE_MS // 3_600_000}h"
    return strategy._replace(bake_ms=bake_ms)


def _with_budget(strategy: Strategy, text: str) -> Strategy | str:
    if read_size(text) is None:
        return "must be a number of DPUs or a percentage, such as 1 or 5%"
    return strategy._replace(failure_budget=text)


def _with_pause(strategy: Strategy, text: str) -> Strategy | str:
    if text not in ("true", "false"):
        return "must be true or false"
    return strategy._replace(is_paused=text == "true")


_READERS: Sequence[tuple[str, Callable[[Strategy, str], Strategy | str]]] = (
    (WAVES, _with_waves),
    (FAILURE_DOMAIN, _with_domain),
    (BAKE_TIME, _with_bake_time),
    (FAILURE_BUDGET, _with_budget),
    (PAUSED_ANNOTATION, _with_pause),
)

"""The results of the demo, for people and scripts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from a join's append until a DPU had applied its rule, over all DPUs and changes."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a demo. `converged` means that every DPU has the rule table of its zone, as computed by a new fold
    of the log."""

    nodes: int
    zones: int
    dpus: int
    cliques: int
    rules_per_zone: int
    join_to_applied_ms: Latency
    joins_per_second: float
    log_records: int
    log_bytes: int
    replay_seconds: float
    replay_records_per_second: float
    converged: bool
    digests_match: bool

    @property
    def is_good(self) -> bool:
        return self.converged and self.digests_match

    def as_json(self) -> dict[str, object]:
        """The result for JSON. Numbers are rounded to the digits that a second run could reproduce."""
        found: dict[str, object] = _rounded(dataclasses.asdict(self))
        return found

    def as_text(self) -> str:
        latency = self.join_to_applied_ms
        rows = (
            ("nodes", f"{self.nodes:,} in {self.zones:,} zones"),
            ("DPUs", f"{self.dpus:,}, each with a rule for every node"),
            ("cliques", f"{self.cliques:,}, their indices dense and unique"),
            ("rules per zone", f"{self.rules_per_zone:,} prefixes, which cover exactly the nodes' addresses"),
            ("join to applied", f"p50 {latency.p50:,.0f} ms, p99 {latency.p99:,.0f} ms, max {latency.max:,.0f} ms"),
            ("joins per second", f"{self.joins_per_second:,.0f}"),
            ("log", f"{self.log_records:,} records, {self.log_bytes / 1e6:,.1f} MB"),
            ("replay", f"{self.replay_seconds:.2f} s, {self.replay_records_per_second:,.0f} records/s"),
            ("every DPU equals the log", "yes" if self.converged else "no"),
            ("folded afresh, same state", "yes" if self.digests_match else "no"),
        )
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}   {value}" for name, value in rows)


def _rounded(value: Any) -> Any:
    """Floats to four significant digits, or to whole numbers."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, max(0, 3 - floor(log10(abs(value))))) if value and isfinite(value) else value
    return value

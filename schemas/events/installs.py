"""Reports of relays about the DPUs of their zones, folded for display only."""

from __future__ import annotations

from schemas.envelope import Event


class InstallsReported(Event, frozen=True, gc=False):
    """Rule tables of the DPUs of one zone, as a relay observed them since its last report.

    Entry i: version `versions[i]` reached level `levels[i]` (0 received, 1 applied, 2 in hardware) on the DPUs
    whose ordinals are in the roaring bitmap `ordinals[i]`. The version's earliest change was appended at
    `appended_ms[i]`; the last of these DPUs reported it at `reached_ms[i]` by the relay's clock. `regressed` names
    DPUs that now hold an older version than they had reported; `refused` maps DPUs to the reason why they refused their
    last table, or lost it (DRIFT).
    """

    schema_id = 32
    zone: str
    relay: str
    epoch: int
    dpu_count: int
    versions: list[int]
    levels: list[int]
    ordinals: list[bytes]
    appended_ms: list[int]
    reached_ms: list[int]
    regressed: dict[str, int]
    refused: dict[str, str]

"""The rows of rollouts: one per DPUSet, and one per DPU."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

DIGEST_MODULUS = 1 << 62
"""Digests of plans are sums below it, so that they fit in a long of Avro."""

ON_DELETE, ROLLING_UPDATE = "OnDelete", "RollingUpdate"

RevisionResult = Literal["", "complete", "replaced"]


class Revision(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A template that a rollout led to, or leads to if `result` is empty. `actor` stated it, or requested the undo."""

    number: int
    template: str
    began_ms: int
    actor: str
    ended_ms: int = 0
    result: RevisionResult = ""


class Rollout(msgspec.Struct, frozen=True, gc=False, array_like=True, kw_only=True):
    """The rollout of a DPUSet. The first fields are those of the last plan (see `RolloutPlanned`); `deployment` is the
    key of the DPUDeployment that wants the DPUSet, empty if a user states it."""

    deployment: str
    position: int
    template: str
    stated: str
    strategy: str
    max_unavailable: str
    waves: tuple[str, ...]
    bake_ms: int
    failure_budget: str
    is_paused: bool
    digest: int

    wave: int = 0
    """The present wave. The DPUs of later waves are not released."""
    wave_releases: int = 0
    """Number of DPUs that were released since the present wave began."""
    baked_ms: int = 0
    """The time from which the next wave may begin; 0 while the DPUs of the present wave are not ready."""
    paused_by: str = ""
    """The operator that paused the rollout, empty if it is not paused by request."""
    held: str = ""
    """Why the rollout is held, in one sentence; empty if it is not held."""
    pin: str = ""
    """The template of an earlier revision that has effect instead of the stated one; empty for the stated one."""
    pinned_against: str = ""
    """The stated template that the pin replaces. The pin ends when the user states another one."""
    requested_offset: int = 0
    """The offset of the last request that changed the pin. A plan derived before it has no effect."""
    requested_by: str = ""
    """The principal of that request."""
    revisions: tuple[Revision, ...] = ()
    """The last revisions; the last one is the present one."""

    @property
    def revision(self) -> int:
        """The number of the present revision."""
        return self.revisions[-1].number if self.revisions else 0

    @property
    def is_last_wave(self) -> bool:
        return self.wave >= len(self.waves) - 1


class DpuRollout(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The image identity that a DPU shall have, and the one that it is released to. `revision` is that of the rollout
    that released it, 0 for its first installation. A forgiven failure does not count towards the failure budget.
    `deleted_uid` is that of the last object of the DPU in Kubernetes that a user deleted."""

    dpu_set: str
    wanted: str
    released: str
    wave: int = 0
    group: int = 0
    revision: int = 0
    is_forgiven: bool = False
    released_ms: int = 0
    deleted_uid: str = ""


class Allocation(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The DPU cluster of a DPU, as the key of its DPUCluster."""

    cluster: str
    since_ms: int


def member_digest(name: str, identity: str, wave: int, group: int) -> int:
    """The digest of one DPU in a plan. The digest of a plan is their sum modulo DIGEST_MODULUS."""
    text = f"{name}\n{identity}\n{wave}\n{group}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % DIGEST_MODULUS

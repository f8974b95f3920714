"""How DPUs join their clusters: tokens of kubeadm. A token is made when an installer asks for its configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from projections.resources.configuration.inputs import Join
from projections.resources.state import object_id

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class SimulatedJoins:
    """The joins of simulated DPU clusters, which know every token."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes

    def fault(self, cluster: str) -> str:
        return ""

    async def join(self, cluster: str, dpu: str) -> Join:
        at = object_id(cluster)
        ca_hash = f"sha256:{hashlib.sha256(cluster.encode()).hexdigest()}"
        return Join(f"{at.name}.{at.namespace}.simulated:6443", ca_hash, new_token(self._random_bytes))


def new_token(random_bytes: Callable[[int], bytes]) -> str:
    """A token of kubeadm: an id of 6 characters and a secret of 16. Bytes that would favour a letter are skipped."""
    letters: list[str] = []
    most = 256 - 256 % len(_LETTERS)
    while len(letters) < 22:
        letters.extend(_LETTERS[byte % len(_LETTERS)] for byte in random_bytes(32) if byte < most)
    return f"{''.join(letters[:6])}.{''.join(letters[6:22])}"

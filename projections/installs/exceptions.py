"""What a DPU did that is out of the ordinary, in words. Clients print it too, so nothing large is imported here."""

from __future__ import annotations

DRIFT = "DRIFT"
"""The first word of the reason of a DPU whose device lost rules of its table. Other reasons are those of refusals."""


def exception_text(version: int, reason: str) -> str:
    """What a DPU with an exception did, as the rest of a sentence."""
    if version >= 0:
        return f"went back to version {version}"
    return f"{'lost' if reason.startswith(f'{DRIFT}: ') else 'refused'} its table: {reason}"

"""The environment variables that dpuplane reads, and similar ones that it would silently ignore.

A mistyped variable looks like a setting without effect, so each unknown name that starts with DPUPLANE_ is reported
with the nearest known one. The settings module is imported only when there is such a name: the import costs a client
command 0.2 s.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from projections.field_checks import quoted

PREFIX = "DPUPLANE_"

CLIENT_VARIABLES = frozenset(
    {
        "DPUPLANE_CACHE",
        "DPUPLANE_CLIENT_CONFIG",
        "DPUPLANE_CLIENT_TLS_CA",
        "DPUPLANE_CLIENT_TLS_CERT",
        "DPUPLANE_CLIENT_TLS_KEY",
        "DPUPLANE_CONFIG",
        "DPUPLANE_CONTEXT",
        "DPUPLANE_LOG_FORMAT",
        "DPUPLANE_LOG_LEVEL",
        "DPUPLANE_SERVER",
    }
)
"""Variables of options that are not settings of a process."""

_OF_KUBERNETES = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Variables of a Service, which Kubernetes sets in each pod. For a Service named dpuplane, one is DPUPLANE_PORT."""


def known_variables() -> frozenset[str]:
    """Every variable that some command reads."""
    from deploy.settings.settings import Settings

    return CLIENT_VARIABLES | {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """One sentence for each DPUPLANE_ variable that no command reads."""
    ours = [name for name in environment if name.startswith(PREFIX) and name not in CLIENT_VARIABLES]
    ours = [name for name in ours if not _OF_KUBERNETES.fullmatch(name)]
    if not ours:
        return []
    known = known_variables()
    return [_sentence(name, known) for name in sorted(ours) if name not in known]


def _sentence(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
    return (
        f"environment: {quoted(name)} is not a variable of dpuplane and was ignored; the most similar one is {nearest}"
    )

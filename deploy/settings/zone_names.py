"""Lists of zones in flags and settings: ZONE,..."""

from __future__ import annotations

from projections.field_checks import check_zone, quoted


def parse_zones(text: str) -> frozenset[str]:
    """The zones of a list; an empty list stands for every zone. Raises ValueError: a zone with an impossible name would
    be awaited forever without a message.
    """
    found = frozenset(filter(None, (zone.strip() for zone in text.split(","))))
    if text and not found:
        raise ValueError(f"zones: {quoted(text)} must name a zone, or be omitted")
    for zone in sorted(found):
        if fault := check_zone("zones", zone):
            raise ValueError(fault)
    return found

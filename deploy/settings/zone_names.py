"""Lists of zones in flags and settings: ZONE,..."""

from __future__ import annotations

from projections.field_checks import check_zone, quoted


def parse_zones(text: str) -> frozenset[str]:
    """The zones of a list; an empty list stands for every zone. Raises ValueError for a name that no zone can
    have: the process would otherwise wait for this zone forever, without a message.
    """
    found = frozenset(filter(None, (zone.strip() for zone in text.split(","))))
    if text and not found:
        raise ValueError(f"zones: {quoted(text)} must name a zone, or be omitted")
    for zone in sorted(found):
        if fault := check_zone("zones", zone):
            raise ValueError(fault)
    return found

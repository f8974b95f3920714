"""Zones as people list them: ZONE,..."""

from __future__ import annotations

from projections.field_checks import check_zone, quoted


def parse_zones(text: str) -> frozenset[str]:
    """The zones of a list; none if it is empty, which stands for every zone. Raises ValueError: a zone of no name that
    there can be would never appear, and be waited for without a word."""
    found = frozenset(filter(None, (zone.strip() for zone in text.split(","))))
    if text and not found:
        raise ValueError(f"zones: {quoted(text)} must name a zone, or be omitted")
    for zone in sorted(found):
        if fault := check_zone("zones", zone):
            raise ValueError(fault)
    return found

"""The DPUs of one link by name, number and ordinal: names in a Hello, numbers on the link, ordinals in the log.

On the link, a set of DPUs is a mask of numbers, assigned in the order of the Hellos. Zones and the log use ordinals. A
DPU that the log does not know, or that another link serves, has no ordinal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyroaring import BitMap

from drivers.wire.protocol import MAX_LINK_DPUS, ProtocolError, all_dpus, numbers_of, union

GROUPS_MAX = 64
"""Maximum cached sets of DPUs with their ordinals."""

_NONE = -1


class Numbering:
    """The numbers of a link's DPUs. Hellos add numbers; an assigned number never changes."""

    __slots__ = ("_bitmaps", "_names", "_numbers", "_ordinals")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._ordinals: list[int] = []
        self._bitmaps: dict[int, BitMap] = {}

    @property
    def names(self) -> Sequence[str]:
        """All named DPUs, in order of their numbers."""
        return self._names

    def add(self, dpus: Sequence[str]) -> int:
        """The set of these DPUs; new ones are numbered. Raises ProtocolError if there are too many."""
        fresh = [dpu for dpu in dpus if dpu not in self._numbers]
        if len(self._names) + len(fresh) > MAX_LINK_DPUS:
            raise ProtocolError(f"hello.dpus: this link would serve more than the {MAX_LINK_DPUS} DPUs allowed")
        for dpu in fresh:
            self._numbers[dpu] = len(self._names)
            self._names.append(dpu)
            self._ordinals.append(_NONE)
        return self.mask_of(dpus)

    def set_ordinal(self, number: int, ordinal: int | None) -> None:
        """Set or remove the ordinal of a DPU."""
        self._ordinals[number] = _NONE if ordinal is None else ordinal
        self._bitmaps.clear()

    def number_of(self, dpu: str) -> int:
        return self._numbers[dpu]

    def mask_of(self, dpus: Iterable[str]) -> int:
        """The set of these DPUs."""
        return union(1 << self._numbers[dpu] for dpu in dpus)

    def names_of(self, mask: int) -> list[str]:
        return [self._names[number] for number in numbers_of(mask)]

    def name_of(self, number: int) -> str:
        return self._names[number]

    def is_all(self, mask: int) -> bool:
        return mask == all_dpus(len(self._names))

    def ordinals_of(self, numbers: Iterable[int]) -> list[int]:
        return [self._ordinals[number] for number in numbers]

    def bitmap_of(self, mask: int) -> BitMap:
        """The ordinals of these DPUs."""
        bitmap = self._bitmaps.get(mask)
        if bitmap is None:
            bitmap = BitMap(ordinal for ordinal in self.ordinals_of(numbers_of(mask)) if ordinal != _NONE)
            if len(self._bitmaps) >= GROUPS_MAX:
                self._bitmaps.clear()
            self._bitmaps[mask] = bitmap
        return bitmap

    def renumbered(self, ordinals_of: Callable[[Sequence[str]], Sequence[int | None]]) -> list[str]:
        """DPUs whose stored ordinal differs from the present one."""
        known = zip(self._names, self._ordinals, ordinals_of(self._names), strict=True)
        return [name for name, ordinal, now in known if ordinal not in (_NONE, now)]

"""Objects that several owners may want under the same key: the first owner in order has it, and the others know."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import NamedTuple

from projections.resources.selecting import Age
from projections.resources.wanted import Wanted


class Claim(NamedTuple):
    """An owner's wish; the smallest age wins."""

    age: Age
    wanted: Wanted


class Claims:
    """Wanted objects by key. The content does not depend on the order of calls."""

    def __init__(self) -> None:
        self.winners: dict[str, Wanted] = {}
        self.holders: dict[str, str] = {}
        """The owner that has each key."""
        self._claims: MutableMapping[str, dict[str, Claim]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}

    def put(self, owner: str, age: Age, wanted: Iterable[Wanted]) -> dict[str, None]:
        """Replace everything that an owner wants. Returns the keys whose wanted object changed."""
        found = {each.at.key: Claim(age, each) for each in wanted}
        keys = dict.fromkeys((*self._keys.pop(owner, ()), *found))
        if found:
            self._keys[owner] = tuple(found)
        changed: dict[str, None] = {}
        for key in keys:
            claims = self._claims.setdefault(key, {})
            claims.pop(owner, None)
            if key in found:
                claims[owner] = found[key]
            if self._decide(key, claims):
                changed[key] = None
        return changed

    def age(self, key: str) -> Age:
        """The age of the owner that has this key."""
        return self._claims[key][self.holders[key]].age

    def of_owner(self, owner: str) -> tuple[str, ...]:
        """The keys that an owner claims."""
        return self._keys.get(owner, ())

    def lost(self, owner: str) -> dict[str, str]:
        """The keys that an owner claims and another owner has, with that one."""
        return {key: self.holders[key] for key in self.of_owner(owner) if self.holders[key] != owner}

    def _decide(self, key: str, claims: dict[str, Claim]) -> bool:
        earlier = self.winners.get(key)
        if not claims:
            del self._claims[key]
            self.holders.pop(key, None)
            return self.winners.pop(key, None) is not None
        holder = self.holders[key] = min(claims, key=lambda owner: claims[owner].age)
        winner = self.winners[key] = claims[holder].wanted
        return winner != earlier

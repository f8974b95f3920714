"""Objects that several owners may want under the same key: the oldest owner has it, and the others lose it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, MutableMapping
from typing import NamedTuple

from projections.resources.selecting import Age
from projections.resources.wanted import Wanted


class OwnerClaim(NamedTuple):
    """The object that an owner wants. Of several claims on a key, the one with the smallest age wins."""

    age: Age
    wanted: Wanted


class Claims:
    """Wanted objects by key. The content does not depend on the order of calls."""

    def __init__(self) -> None:
        self.winners: dict[str, Wanted] = {}
        self.holders: dict[str, str] = {}
        """The owner that has each key."""
        self._claims: MutableMapping[str, dict[str, OwnerClaim]] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._by_kind: MutableMapping[str, dict[str, None]] = {}
        """The won keys by `source/kind`."""
        self._by_wanter: MutableMapping[str, dict[str, None]] = {}
        """The won keys by the object that wants them."""
        self._contested: dict[str, None] = {}
        """The keys that several owners claim."""

    def put(self, owner: str, age: Age, wanted: Iterable[Wanted]) -> dict[str, None]:
        """Replace all claims of an owner. Returns the keys whose wanted object changed."""
        found = {each.at.key: OwnerClaim(age, each) for each in wanted}
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

    def contested(self) -> Iterator[tuple[str, str, str]]:
        """Each key that an owner claims and another one has: the key, this owner, and the one that has the key."""
        for key in self._contested:
            holder = self.holders[key]
            yield from ((key, owner, holder) for owner in self._claims[key] if owner != holder)

    def of_kind(self, source: str, kind: str) -> Collection[str]:
        """The keys of all wanted objects of a kind. An empty source or kind stands for all of them."""
        if source and kind:
            return self._by_kind.get(f"{source}/{kind}", {}).keys()
        return [
            key
            for collection, keys in self._by_kind.items()
            if source in ("", collection.partition("/")[0]) and kind in ("", collection.partition("/")[2])
            for key in keys
        ]

    def wanted_by(self, key: str) -> Collection[str]:
        """The keys of all objects that an object wants, and that no other object has."""
        return self._by_wanter.get(key, {}).keys()

    def age(self, key: str) -> Age:
        """The age of the owner that has this key."""
        return self._claims[key][self.holders[key]].age

    def of_owner(self, owner: str) -> tuple[str, ...]:
        """The keys that an owner claims."""
        return self._keys.get(owner, ())

    def claimants(self, key: str) -> tuple[str, ...]:
        """The owners that claim a key."""
        return tuple(self._claims.get(key, ()))

    def lost(self, owner: str) -> dict[str, str]:
        """The keys that an owner claims and another owner has, with that one."""
        return {key: self.holders[key] for key in self.of_owner(owner) if self.holders[key] != owner}

    def _decide(self, key: str, claims: dict[str, OwnerClaim]) -> bool:
        earlier = self.winners.get(key)
        if len(claims) > 1:
            self._contested[key] = None
        else:
            self._contested.pop(key, None)
        if not claims:
            del self._claims[key]
            self.holders.pop(key, None)
            if earlier is not None:
                del self.winners[key]
                self._remove_from_index(earlier)
            return earlier is not None
        holder = self.holders[key] = min(claims, key=lambda owner: claims[owner].age)
        winner = self.winners[key] = claims[holder].wanted
        if winner == earlier:
            return False
        if earlier is not None:
            self._remove_from_index(earlier)
        self._by_kind.setdefault(f"{winner.at.source}/{winner.at.kind}", {})[key] = None
        self._by_wanter.setdefault(winner.owner, {})[key] = None
        return True

    def _remove_from_index(self, wanted: Wanted) -> None:
        key = wanted.at.key
        for index, entry in (
            (self._by_kind, f"{wanted.at.source}/{wanted.at.kind}"),
            (self._by_wanter, wanted.owner),
        ):
            index[entry].pop(key)
            if not index[entry]:
                del index[entry]

"""The objects whose writes failed because of the server, and the end of their pauses once the server has recovered.

The cause of such failures concerns many objects: an overloaded server, a webhook that is down, a missing definition, or
missing rights. So one paused object of a target is tried often, as a probe, and the other objects wait. Any successful
write of the target ends the pauses of all its objects. If only some objects fail, their pauses would end with each
write of another object. Therefore, an object that fails again after that waits, and twice as long each time.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class PausedObjects(Generic[T]):
    """Paused objects by target, the longest pause first. A key is a target and the name of one of its objects."""

    def __init__(self, *, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._until_s: dict[T, dict[str, float]] = {}
        """The time before which the pause of an object does not end early."""
        self._releases: dict[tuple[T, str], int] = {}
        """Number of early ends of an object's pauses since its last success."""
        self._probes: dict[T, str] = {}

    def __len__(self) -> int:
        return sum(map(len, self._until_s.values()))

    def add(self, key: tuple[T, str], now_s: float) -> None:
        """Record that the attempts of an object are used up."""
        target, name = key
        releases = min(self._releases.get(key, 0), 16)
        wait_s = min(self._most_s, self._least_s * (2**releases - 1))
        self._until_s.setdefault(target, {})[name] = now_s + wait_s

    def discard(self, key: tuple[T, str], *, is_written: bool = False) -> None:
        """Record that an object is tried again, or with `is_written` that it needs no write any more."""
        target, name = key
        paused = self._until_s.get(target)
        if paused is not None and paused.pop(name, None) is not None and not paused:
            del self._until_s[target]
        if self._probes.get(target) == name:
            del self._probes[target]
        if is_written:
            self._releases.pop(key, None)

    def new_probe(self, target: T) -> str | None:
        """The next probe of a target: its object with the longest pause. None if the target has a probe already, or no
        paused object."""
        paused = self._until_s.get(target)
        if paused is None or target in self._probes:
            return None
        probe = self._probes[target] = next(iter(paused))
        return probe

    def release(self, target: T, now_s: float) -> list[str]:
        """Remove the objects whose pauses end, because a write of their target has succeeded."""
        found = [name for name, until_s in self._until_s.get(target, {}).items() if until_s <= now_s]
        for name in found:
            key = (target, name)
            self.discard(key)
            self._releases[key] = self._releases.get(key, 0) + 1
        return found

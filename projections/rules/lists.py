"""Rule lists derived from policies: the content of a zone's table.

A **set** is a rule and the selectors of its sources; a **list** is the sets of a zone in order of precedence. Both are
identified by content, not by the policies that produced them. Zones with equal lists share everything, and policies of
one zone with the same rule make one set, because a device holds one set of prefixes per rule.

A `Plan` is everything that follows from the policies and the labels of zones alone. It gives each list a number and
each set a bit: the sets that hold an address are an integer, and each list's verdict on that integer is cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import msgspec

from projections.memo import Memo
from projections.rules.policies import Policy, Selector, matches, selector
from projections.rules.rule import Rule, precedence
from projections.rules.traffic import TrafficClasses, allowed_classes


class SetKey(NamedTuple):
    """A rule and its sources: all nodes that match any of the selectors."""

    rule: Rule
    sources: tuple[Selector, ...]


ListKey: TypeAlias = tuple[SetKey, ...]
"""Sets in order of precedence, no two with the same rule."""

STAGE = ""
"""The key of the label that the label set of a cohort has beside the labels of its zones. No zone can have this key.
A cohort is the DPUs of a released stage of a staged change."""


class Canary(NamedTuple):
    """The policy that cohorts have in place of the policy in force with this name; None if they have none."""

    name: str
    policy: Policy | None


MatchOrder: TypeAlias = tuple[tuple[int, bool, int], ...]
"""A list's sets in order of precedence: bit, whether it allows, classes of traffic that it matches."""

MAX_VERDICTS = 65_536
MAX_LOSSES = 4_096
"""Maximum number of entries of a plan's cache of verdicts, and of its cache of losses. Their keys are combinations of
sets, and clients can create any number of combinations."""


def text_of(key: SetKey) -> str:
    """A set's key as the key of its saved row."""
    return msgspec.json.encode(key).decode()


def id_of(key: ListKey) -> str:
    """A short name for a list, equal on every replica."""
    return blake2b(msgspec.json.encode(key), digest_size=16).hexdigest()


def list_of(policies: Iterable[Policy], zone_labels: Mapping[str, str]) -> ListKey:
    """The list of a zone with these labels."""
    sources: dict[Rule, set[Selector]] = {}
    for policy in policies:
        if matches(policy.zones, zone_labels):
            sources.setdefault(policy.rule, set()).add(selector(policy.sources))
    return tuple(SetKey(rule, _fewest(sources[rule])) for rule in sorted(sources, key=precedence))


def is_cohort(zone_labels: Selector) -> bool:
    """Whether a label set is that of a cohort. Its label sorts before all others."""
    return bool(zone_labels) and zone_labels[0][0] == STAGE


def _fewest(selectors: set[Selector]) -> tuple[Selector, ...]:
    return ((),) if () in selectors else tuple(sorted(selectors))


class Plan:
    """All lists under some policies, for zones with some labels (and for zones without any).

    Label sets of cohorts have the policy of `canary` in place of the policy in force. Lists that are unchanged since
    `previous` are taken from it: most edits affect the lists of few zones.
    """

    def __init__(
        self,
        policies: Iterable[Policy],
        zone_labels: Iterable[Selector],
        previous: Plan | None = None,
        canary: Canary | None = None,
    ) -> None:
        self.policies = tuple(policies)
        self._canary = canary
        self._of_pair = _policies_by_pair(self.policies)
        known = previous.unchanged_lists(self.policies, canary) if previous is not None else {}
        found = {
            labels: known[labels] if labels in known else list_of(self._candidates(labels), dict(labels))
            for labels in sorted({(), *zone_labels})
        }
        self.lists = tuple(dict.fromkeys(found.values()))
        self.ids = tuple(id_of(key) for key in self.lists)
        self.keys = tuple(dict.fromkeys(key for keys in self.lists for key in keys))
        numbers = {key: number for number, key in enumerate(self.lists)}
        self._number = {labels: numbers[key] for labels, key in found.items()}
        bits = {key: bit for bit, key in enumerate(self.keys)}
        self._bits = tuple(tuple(bits[key] for key in keys) for keys in self.lists)
        self._verdicts = _Verdicts(self.match_orders(TrafficClasses(key.rule for key in self.keys)))
        self._everybody, self._wanting = _by_pair(self.keys)
        self._names: Memo[Selector, tuple[str, ...]] = Memo(len(self._number))
        self._lost: Memo[tuple[int, int], tuple[int, ...]] = Memo(MAX_LOSSES)

    def unchanged_lists(self, policies: Iterable[Policy], canary: Canary | None = None) -> dict[Selector, ListKey]:
        """Lists that these policies leave unchanged, by the labels of zones."""
        ours, theirs = {found.name: found for found in self.policies}, {found.name: found for found in policies}
        altered = [ours[name] for name in ours if ours[name] != theirs.get(name)]
        altered += [theirs[name] for name in theirs if theirs[name] != ours.get(name)]
        return {
            labels: self.lists[number]
            for labels, number in self._number.items()
            if not any(matches(policy.zones, dict(labels)) for policy in altered)
            and (canary == self._canary or not is_cohort(labels))
        }

    def number_of(self, zone_labels: Mapping[str, str]) -> int:
        """The number of the list of a zone with these labels. The plan must have been made for these labels."""
        return self._number[selector(zone_labels)]

    def number_for(self, zone_labels: Selector) -> int:
        """Like `number_of`, for labels in their canonical form."""
        return self._number[zone_labels]

    def has(self, zone_labels: Selector) -> bool:
        """Whether the plan was made for these labels, too."""
        return zone_labels in self._number

    def names_of(self, zone_labels: Mapping[str, str]) -> tuple[str, ...]:
        """The names of policies behind the list of a zone with these labels: one text per set of the list, with the
        policies that produce the set."""
        return self.names_for(selector(zone_labels))

    def names_for(self, zone_labels: Selector) -> tuple[str, ...]:
        """Like `names_of`, for labels in their canonical form."""
        return self._names.of(zone_labels, self._name_sets)

    def _name_sets(self, zone_labels: Selector) -> tuple[str, ...]:
        of_rule: dict[Rule, list[str]] = {}
        for policy in self._candidates(zone_labels):
            if matches(policy.zones, dict(zone_labels)):
                of_rule.setdefault(policy.rule, []).append(policy.name)
        return tuple(",".join(sorted(of_rule[found.rule])) for found in self.lists[self._number[zone_labels]])

    def _candidates(self, zone_labels: Selector) -> Iterator[Policy]:
        """Policies that may select a zone with these labels, in no particular order."""
        canary = self._canary if is_cohort(zone_labels) else None
        for pair in (None, *zone_labels):
            found = self._of_pair.get(pair, ())
            yield from found if canary is None else (policy for policy in found if policy.name != canary.name)
        if canary is not None and canary.policy is not None:
            yield canary.policy

    def set_bits(self, number: int) -> tuple[int, ...]:
        """The sets of a list, as places in `keys`, in order of precedence."""
        return self._bits[number]

    def bits_of(self, labels: Mapping[str, str]) -> int:
        """The sets that contain a node with these labels, one bit per set. The cost grows only with the number of
        labels."""
        bits = self._everybody
        for pair in labels.items():
            for mask, others in self._wanting.get(pair, ()):
                if matches(others, labels):
                    bits |= mask
        return bits

    def allows(self, number: int, bits: int) -> int:
        """The classes of traffic that a list allows to an address that these sets hold."""
        return self._verdicts.of(number, bits)

    def lost(self, before: int, after: int) -> tuple[int, ...]:
        """The lists in which an address loses allowed traffic when it leaves the sets `before` and enters the sets
        `after`."""
        return self._lost.of((before, after), self._find_lost)

    def _find_lost(self, bits: tuple[int, int]) -> tuple[int, ...]:
        before, after = bits
        return tuple(n for n in range(len(self.lists)) if self.allows(n, before) & ~self.allows(n, after))

    def match_orders(self, traffic: TrafficClasses) -> tuple[MatchOrder, ...]:
        """The sets of each list in order of precedence, with action and traffic mask."""
        return tuple(
            tuple((1 << bit, keys[i].rule.action == "allow", traffic.masks[keys[i].rule]) for i, bit in enumerate(bits))
            for bits, keys in zip(self._bits, self.lists, strict=True)
        )


def _policies_by_pair(policies: Iterable[Policy]) -> dict[tuple[str, str] | None, list[Policy]]:
    """Policies by a zone label that they require; the key of policies that require no label is None. Without this
    index, an edit would match every policy with every zone: most edits concern all zones, and a fleet may have a policy
    per zone."""
    found: dict[tuple[str, str] | None, list[Policy]] = {}
    for policy in policies:
        wanted = selector(policy.zones)
        found.setdefault(wanted[-1] if wanted else None, []).append(policy)
    return found


class _Verdicts:
    """The verdicts of lists: the classes of traffic that a list allows to an address, depending on the sets that hold
    the address.

    Sets have the same order in every list. So the verdict of a list depends only on those sets of the list that hold
    the address.
    """

    def __init__(self, match_orders: Iterable[MatchOrder]) -> None:
        self._judges = tuple(match_orders)
        self._masks = tuple(sum(bit for bit, _, _ in judge) for judge in self._judges)
        self._known: Memo[int, int] = Memo(MAX_VERDICTS)

    def of(self, number: int, bits: int) -> int:
        judge = self._judges[number]
        return self._known.of(
            bits & self._masks[number],
            lambda own: allowed_classes((allows, mask) for bit, allows, mask in judge if own & bit),
        )


def _by_pair(keys: Iterable[SetKey]) -> tuple[int, dict[tuple[str, str], tuple[tuple[int, Selector], ...]]]:
    """An index of sets by required label, with which `bits_of` matches a node's labels.

    The first value has the bits of the sets that contain every node. The second value is the index: each selector is
    under one of its labels, as a pair of the bits of its sets and the selector's other labels. Without the index, every
    edit of a policy would match each label set (there may be one per node) with every policy.
    """
    everybody = 0
    wanting: dict[tuple[str, str], dict[Selector, int]] = {}
    for bit, key in enumerate(keys):
        for wanted in key.sources:
            if not wanted:
                everybody |= 1 << bit
                continue
            masks = wanting.setdefault(wanted[-1], {})
            masks[wanted[:-1]] = masks.get(wanted[:-1], 0) | 1 << bit
    return everybody, {pair: tuple((mask, rest) for rest, mask in masks.items()) for pair, masks in wanting.items()}


class VerdictCounts(NamedTuple):
    """The number of addresses that lose allowed traffic, and of those that gain some."""

    denied: int
    allowed: int


def count_verdict_changes(
    old: Plan, new: Plan, moves: Iterable[tuple[int, int]], held: Mapping[tuple[int, int], int]
) -> dict[tuple[int, int], VerdictCounts]:
    """The number of verdicts that change with each move from a list of the old plan to a list of the new one."""
    traffic = TrafficClasses(key.rule for key in (*old.keys, *new.keys))
    before_it, after_it = _Verdicts(old.match_orders(traffic)), _Verdicts(new.match_orders(traffic))
    counts: dict[tuple[int, int], VerdictCounts] = {}
    for was, becomes in sorted(set(moves)):
        if old.lists[was] == new.lists[becomes]:
            continue
        denied = allowed = 0
        for (before, after), count in held.items():
            had, has = before_it.of(was, before), after_it.of(becomes, after)
            denied += count if had & ~has else 0
            allowed += count if has & ~had else 0
        counts[was, becomes] = VerdictCounts(denied, allowed)
    return counts

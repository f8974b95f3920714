"""The rule tables of zones."""

from projections.rules import Delta, Rule, SetStep

__all__ = ["Delta", "Rule", "SetStep"]

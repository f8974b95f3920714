"""Bugs that people really make, each built into the plane on purpose, and the invariant that must catch it.

`python -m tests.seeded` plants them one after the other and shows which checker caught what. A checker that never
caught anything may be looking the other way.
"""

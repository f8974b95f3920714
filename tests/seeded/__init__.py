"""Typical bugs, each planted in the plane, with the invariant that must catch it.

`python -m tests.seeded` plants the bugs one after the other, and prints the invariants that caught each. A checker that
has never caught a bug may check nothing.
"""

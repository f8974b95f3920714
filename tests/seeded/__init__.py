"""Typical bugs, each planted in the plane on purpose, with the invariant that must catch it.

`python -m tests.seeded` plants them one after the other and prints the checkers that caught each. A checker that never
caught a bug may check nothing.
"""

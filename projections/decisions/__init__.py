"""Decisions spelled out, for those who read the log without folding it."""

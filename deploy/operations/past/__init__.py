"""Queries as of a point of the past, each folded in a process of its own, and the history of one subject."""

"""Edits of policies and of zones' labels, and their impact on the list of every zone."""

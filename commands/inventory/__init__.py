"""Inventory files: existing lists of a fleet, for clients that send commands."""

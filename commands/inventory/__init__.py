"""Inventory files: fleets as somebody already lists them, for those who send commands."""

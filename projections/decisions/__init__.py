"""Renders decisions for readers of the log that do not fold it."""

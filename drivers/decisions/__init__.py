"""The writer of the decisions topic."""

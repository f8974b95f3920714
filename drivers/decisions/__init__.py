"""The writer of the decisions topic, and what it needs to know of the topic."""

"""The writer of the decisions topic, and its knowledge of the written decisions."""

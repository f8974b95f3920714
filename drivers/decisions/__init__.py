"""The writer of the decisions topic, and its record of the written decisions."""

"""The Commands service: what is stated, and the answer that the log has for it."""

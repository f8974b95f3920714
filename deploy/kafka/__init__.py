"""Kafka around the plane: how a process proves itself to it, what it may do there, and brokers of one's own."""

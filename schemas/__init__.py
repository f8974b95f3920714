"""Contracts only: the events of the log (Avro) and the messages of its edges (protobuf)."""

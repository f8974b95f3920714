"""Logs and traces of a process. Log lines that a peer can cause are sampled."""

"""Commands that run a process until a signal, and the health check of a serving process."""

"""A simulated API server: deterministic, on any clock, and able to fail in ways that a real one cannot be made to."""

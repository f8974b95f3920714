"""Fleets of simulated DPUs, for demos, tests and benches."""

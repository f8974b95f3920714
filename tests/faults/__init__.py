"""Faults on real processes and real brokers, and the catalog of all faults that the plane must survive."""

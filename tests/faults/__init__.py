"""Faults on real processes and real brokers, and the catalogue of all faults that the plane is to survive."""

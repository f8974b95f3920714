"""Faults injected into real processes and brokers, and the catalog of all faults that the plane must survive."""

"""Searches for the BMCs of DPUs in ranges of addresses."""

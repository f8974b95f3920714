"""The installs fold: what relays report of the DPUs that they reach."""

"""The installs fold: relays' reports of the DPUs that they reach."""

"""Hosts of DPUs: the effects of maintenances on them, their reboots, and the objects about both."""

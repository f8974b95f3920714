"""The fold of zones: nodes and DPUs of the zones of a partition, the lifecycle of a DPU, and the outbox to fleet."""

"""The zone fold: nodes and DPUs of the zones of a partition, the life of a DPU, and what fleet is told."""

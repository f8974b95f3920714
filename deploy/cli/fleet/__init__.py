"""Commands for nodes, zones, cliques and DPUs, and the import of an inventory."""

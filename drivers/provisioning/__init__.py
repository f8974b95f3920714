"""The provisioner: it takes a DPU through the steps of its lifecycle, over its BMC."""

"""The provisioner: it takes a DPU through the steps of its life, over its BMC."""

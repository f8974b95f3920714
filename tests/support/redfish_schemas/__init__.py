"""The schemas of DMTF and NVIDIA for the validator of the simulated BMC."""

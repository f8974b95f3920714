"""The installer of DPUs whose management service speaks gNMI and gNOI, as NVIDIA's DMS does."""

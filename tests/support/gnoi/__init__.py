"""A management service of a DPU that speaks gNMI and gNOI: gnxi's servers, and steps of a DPU on it."""

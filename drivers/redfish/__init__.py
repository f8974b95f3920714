"""DPUs through their BMCs, by DMTF's Redfish with NVIDIA's extensions: BlueField-3 and BlueField-4."""

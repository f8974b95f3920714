"""The published protocols of OpenConfig that management services of DPUs speak: gNMI, and gNOI's OS and System."""

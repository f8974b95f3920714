"""The configuration that a DPU is installed with: bf.cfg and cloud-init user-data, rendered from its flavor."""

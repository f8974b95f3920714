"""DPUDeployments: what they need, and the objects that they want."""

"""The DPUs of a zones partition: their lifecycle, and the rollout of images within the limits of a zone."""

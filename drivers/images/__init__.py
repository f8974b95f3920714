"""The image store: it downloads images of DPUs, keeps them by content, and serves them to installers."""

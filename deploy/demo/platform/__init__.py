"""The platform demo: DPF manifests from discovery to Ready, an update in waves that is held, and back."""

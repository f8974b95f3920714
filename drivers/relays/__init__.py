"""The relay: it brings each DPU the table of its zone, and reports what DPUs have."""

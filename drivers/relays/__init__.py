"""The relay: it sends each DPU the table of its zone, and reports the DPUs' tables to the log."""

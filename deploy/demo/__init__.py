"""The demo: a fleet joins a complete plane in one process, through its API, and is compared with the log at the end."""

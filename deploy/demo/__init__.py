"""The demo: a fleet joins a whole plane in one process, through its API, and is checked against the log at the end."""

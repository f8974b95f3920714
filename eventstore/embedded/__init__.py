"""The log in a directory of one process."""

"""The client of the API: connections, retries by command id, pages, watches and typed errors."""

"""TLS: the identity of a process, the authorities that it trusts, and the roles that each listener admits."""

"""Rules, the selection of a zone's rules from policies, and a device's table."""

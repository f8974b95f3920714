"""The database of Open vSwitch (OVSDB, RFC 7047): a session with its server, and the ports of its bridges."""

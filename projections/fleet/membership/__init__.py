"""The members of the fleet: the accepted state of each node, and how forwarded changes are decided and applied."""

"""What rules are, which of them a zone has, and how a device holds them."""

"""The decisions of a plane: the process that writes them for role `all`, and the fold that prints them."""

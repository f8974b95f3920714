"""What was: any moment of the past, folded in a process of its own, and all that ever happened to one subject."""

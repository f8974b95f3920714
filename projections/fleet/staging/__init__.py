"""Staged changes of policies: their rows, how they begin, advance and end, and how the plan of lists follows them."""

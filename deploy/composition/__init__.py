"""The tables of topics and roles, which all other parts read: a new fold or actor is one more row."""

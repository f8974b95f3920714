"""Changes of the networks of a source in stages: what the source states, the rows, and the decisions."""

"""Objects of resources in clusters: what is wanted is written, and what is not wanted any more is deleted."""

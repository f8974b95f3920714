"""Objects of resources in clusters: what is wanted as manifests, what is there, statuses and finalizers."""

"""The inbound Kubernetes edge: it watches objects of source clusters, and appends events for what the folds lack."""

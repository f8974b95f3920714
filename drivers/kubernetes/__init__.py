"""The outbound Kubernetes edge: it writes compact status, and objects computed from the folds, to clusters."""

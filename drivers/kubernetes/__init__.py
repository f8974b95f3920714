"""The Kubernetes edge, outwards: it writes compact status, and objects that follow from the folds, to clusters."""

"""Bodies of Kubernetes objects that follow from the folds, and the objects that an edge watches. Pure."""

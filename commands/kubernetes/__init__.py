"""The Kubernetes edge, inwards: it watches objects of source clusters, and states what the folds lack of them."""

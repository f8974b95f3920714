"""A real Kubernetes control plane for tests: kube-apiserver with etcd, and the controllers where a test needs them."""

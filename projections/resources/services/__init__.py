"""What DPUServices become: Applications of Argo CD, and everything that those need in each cluster."""

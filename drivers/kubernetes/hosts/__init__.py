"""Hosts and DPUs as nodes of Kubernetes clusters: the calls that steps of lifecycles make."""

"""What the plane uses of Kubernetes: the API as a protocol, and the objects that others own, field by field."""

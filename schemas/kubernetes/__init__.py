"""The parts of Kubernetes that the plane uses: the API as a protocol, and fields of objects that other programs own."""

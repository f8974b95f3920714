"""Kafka for the plane: authentication and encryption, ACLs, and a local cluster."""

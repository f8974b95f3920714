"""Protobuf contracts: the API (dpuplane.proto) and the messages between relays and agents (agent.proto)."""

"""Protobuf contracts: the API that callers see (dpuplane.proto) and the messages between relays and agents."""

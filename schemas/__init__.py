"""Contracts only: the events of the log (Avro) and the messages of the API and the agent link (protobuf).

Start with `events/`: one Struct for each event that can be in the log. Its Avro schema, derived from it, is the format
in the log. A released schema never changes: a new version gets a new schema, and `upcasts.py` converts old versions to
new ones. `api/` has the two wire protocols, of clients (`dpuplane.proto`) and of agents (`agent.proto`), and the code
generated from them.

This package imports nothing else of the tree.
"""

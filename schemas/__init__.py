"""Contracts only: the events of the log (Avro) and the messages of its edges (protobuf).

Start with `events/`: everything that can ever happen, one Struct per event. Its twin, an Avro schema, lies beside it:
that is what stands in the log, released for ever (`upcasts.py` turns old ones into new ones). `api/` has the two wire
protocols, of clients (`dpuplane.proto`) and of agents (`agent.proto`), and the code generated from them.

Imports nothing else of the tree.
"""

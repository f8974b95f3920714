"""Contracts only: the events of the log (Avro) and the messages of its edges (protobuf).

Start with `events.py`: everything that can ever happen, one Struct per event. Its twins in `events/` are what stands in
the log, released for ever (`upcasts.py` turns old ones into new ones). `api/` has the two wire protocols, of clients
(`dpuplane.proto`) and of agents (`agent.proto`), and the code generated from them.

Imports nothing else of the tree.
"""

"""The log, and what every fold needs: engines, codec, saved state, and the replica that reads, decides and evolves.

Start with `log.py` (what a log promises, whichever engine) and `folding/fold.py` (what a fold is), then
`replicas/replica.py`, which brings the two together, and `folding/partition.py`, the way of one record through
everything that folds have in common.

    engines       embedded, kafka, faulty_log (either, behind injected faults)
    records       avro, ids, position
    a replica     folding (one partition), saved (its state), replicas (all of them, and who waits)
    going back    recovery: replays, the past, backups

Imports schemas. Nothing outside it touches aiokafka, fastavro or rocksdict.
"""

"""The log, and what every fold needs: engines, codec, saved state, and the replica that reads, decides and evolves.

Start with `log.py` (the contract of every engine) and `folding/fold.py` (the contract of a fold). Then read
`replicas/replica.py`, which connects the two, and `folding/partition.py`, the path of one record through the steps
that all folds share.

    engines       embedded, kafka
    records       avro, ids, position
    a replica     folding (one partition), state_store (its saved state), replicas (all partitions, and the waiters)
    the past      recovery: replays, as-of folds, backups

This package imports schemas. No package outside eventstore imports aiokafka, fastavro or rocksdict.
"""

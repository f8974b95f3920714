"""The log, and what every fold needs: engines, codec, saved state, and the replica that reads, decides and evolves.

Start with `log.py` (what a log promises, whichever engine) and `fold.py` (what a fold is), then `replica.py`, which
brings the two together, and `partition.py`, the way of one record through everything that folds have in common.

    engines       embedded (rocks, rocks_reader, secondary), kafka (kafka_*), hostile (either, behind faults)
    records       codec, avro, avro_writer, released; ids, position, hashes
    a replica     origin, reading, partition, ledger, saving into snapshots (rocks_store), submitting, waiting,
                  deadlines
    beside it     beacons (who is there), replay (fold afresh)

Imports schemas. Nothing outside it touches aiokafka, fastavro or rocksdict.
"""

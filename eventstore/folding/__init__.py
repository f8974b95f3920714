"""The parts that all folds share: the ledger of command ids, tables of rows, the partition as folded so far."""

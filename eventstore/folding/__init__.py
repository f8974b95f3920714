"""What every fold needs around it: the ledger of command ids, tables of rows, the partition as folded so far."""

"""What every fold needs around it: the ledger of commands, tables of rows, the partition as folded so far."""

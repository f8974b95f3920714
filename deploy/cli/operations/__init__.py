"""Commands for operators of a plane and its log: status, history, verification, backup, upgrade, certificates."""

"""Certificates: who a process is, whom it believes, and who may pass which door."""

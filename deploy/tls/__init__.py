"""Certificates: who a process is, whom it believes, and which roles may use which listener."""

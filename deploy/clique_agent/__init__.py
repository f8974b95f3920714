"""The agent of a clique's daemon: it claims an index, keeps the daemon's files, and runs the daemon (IMEX)."""

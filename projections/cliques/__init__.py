"""The clique fold: which node has which index of its clique, who waits, whose daemon is ready."""

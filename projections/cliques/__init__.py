"""The cliques fold: assignment of a clique's indices to nodes, and the queue of waiting nodes."""

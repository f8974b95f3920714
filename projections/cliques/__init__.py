"""The cliques fold: which node holds which index of a clique, and which nodes wait for one."""

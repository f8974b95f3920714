"""The log, and what every fold needs: engines, codec, saved state, and the replica that reads, decides and evolves."""

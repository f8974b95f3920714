"""The saved state of folds, and its checkpoints."""

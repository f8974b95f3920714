"""Recovery and the past: replays, folds as of a point in the past, backups and restores."""

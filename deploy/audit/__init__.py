"""The log as a whole: backups, signed audit checkpoints, verification by a second fold, and previews of upgrades."""

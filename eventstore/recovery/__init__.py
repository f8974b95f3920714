"""Going back: replays, moments of the past, backups and what is restored from them."""

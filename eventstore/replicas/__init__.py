"""A replica: it follows the log, folds it, and answers from it. Beacons tell replicas of each other."""

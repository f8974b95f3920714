"""A replica: it follows the log, folds it, and answers from it; and how replicas know of each other."""

"""What is shown of several folds at once, and what a command would do."""

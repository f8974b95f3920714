"""Views that combine several folds, and dry runs of commands."""

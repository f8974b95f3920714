"""The Queries service: it waits for a position and reads folds, live or as of a point of the past."""

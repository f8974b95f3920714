"""The folds: pure. They decide, and derive everything that is shown or driven."""

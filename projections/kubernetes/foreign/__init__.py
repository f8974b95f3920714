"""What the plane observes of objects that other programs own: a module per kind, with the fields that folds use."""

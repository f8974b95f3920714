"""One process of the plane: `plane` creates its parts, `run` runs them until a signal."""

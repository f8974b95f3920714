"""Common parts of all RPCs: authentication, authorization, limits, deadlines, status codes and metrics."""

"""What every RPC needs: authentication, authorization, limits, deadlines, status codes and metrics."""

"""An extended plane: a fold, an actor, an event type and backends that exist only for tests, each added by one line."""

"""Events as bytes: one Avro schema for each version of each event."""

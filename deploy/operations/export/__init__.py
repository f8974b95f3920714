"""Exports of the log: as JSON, as rows, as Parquet, and its schemas for any tool that reads Kafka."""

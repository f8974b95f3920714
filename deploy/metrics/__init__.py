"""Metrics of a process, read from its parts when scraped: `catalog` names them all, `collector` gathers them."""

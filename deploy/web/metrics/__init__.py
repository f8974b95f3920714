"""Metrics of a process, read from its parts when scraped: `catalog` defines them, `collector` reads them."""

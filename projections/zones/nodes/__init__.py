"""The nodes of a zones partition: joins, changes and leaves, decided item by item."""

"""The Commands service: one handler for most commands, and one each for joins, leaves, upgrades and dry runs."""

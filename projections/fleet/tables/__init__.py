"""The rule tables that follow from members and policies: sets, their covers, and the table of a zone."""

"""Histories of fold versions: logs with every event and every refusal, and the results that each record must have."""

"""Validates requests and makes the event of each. Each function raises InvalidRequest for an invalid request."""

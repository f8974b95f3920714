"""Devices behind one small protocol."""

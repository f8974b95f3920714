"""Simulated BMCs of BlueFields that speak Redfish over HTTPS."""

"""Helm charts that services name: the versions of other software that they need."""

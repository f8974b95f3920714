"""Actors between the objects of custom resources and the rest of the plane."""

"""Mutation tests: every pure module is changed in thousands of small ways, one at a time, and a test must fail."""

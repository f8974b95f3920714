"""Requests as statements: what each kind must look like, and the record that it becomes."""

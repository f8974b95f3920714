"""Requests as statements: what each kind must look like, and the record that it becomes.

Whatever makes a statement raises BadRequest for a shape that is wrong.
"""

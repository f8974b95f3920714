"""A fault of a document."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """One fault of a document: a sentence without its subject, which is the field at `path`."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence}" if self.path else self.sentence

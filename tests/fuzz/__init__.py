"""Fuzzing of everything that reads what somebody else wrote: bytes of the log, frames, requests, files, settings.

    target       what a fuzz target is, and what it holds every refusal to
    of_*         the targets, each with its properties
    mutators     how inputs are changed so that most of them still mean something
    corpus       the inputs in the tree, one text file per target; `seeds` makes the first of them, with real encoders
    runner       atheris (libFuzzer), a process per target

Every input of the corpus goes through its target in `make test`, with or without atheris.
"""
